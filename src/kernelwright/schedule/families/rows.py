"""Row programs: reductions and pointwise steps over rows."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod

from kernelwright.ir.anchors import Extent, RowProgram, untold_sizes
from kernelwright.ir.expr import Expr, Operand, Total, operations, walk
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Reduce, Reduction
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.row_configs import ColumnPartRows, ColumnRows, PartRows, RowConfig
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import (
    Description,
    Family,
    Free,
    Launcher,
    Unit,
    Work,
    computed,
)
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.row_configs import row_configs
from kernelwright.schedule.row_groups import RowGroup, program_of, row_groups


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    launch = launchers[Reduce]
    return [
        Unit(members=it.members, launch=partial(launch, it, free.graph, free.machine))
        for it in row_groups(free.graph, free.movable)
    ]


def _launch(group: RowGroup, graph: Graph, machine: Machine) -> Launch:
    program, inputs = program_of(group, graph)
    types = tuple(node.type for node in inputs)
    kernel = Kernel(
        family=ROWS.name,
        anchor=program,
        epilogue=None,
        inputs=types,
        outputs=tuple(node.tensor for node in group.results),
        config=row_configs(program, types, machine)[0],
        **labels(group.members),
    )
    return launched(kernel, group.results, inputs)


def _configs(kernel: Kernel, machine: Machine) -> tuple[RowConfig, ...]:
    configs = row_configs(kernel.anchored(RowProgram), kernel.operands, machine)
    return tuple(it for it in configs if writes_pairs(it)) if kernel.pairs else configs


def writes_pairs(config: RowConfig) -> bool:
    """Whether a thread stores neighbours of a row, as pairs if need be."""
    return not isinstance(config.tuned, ColumnRows | ColumnPartRows | PartRows)


def _cost(kernel: Kernel) -> Work:
    program = kernel.anchored(RowProgram)
    folds = sum(operations(fold.value) + 1 for fold in program.folds)
    flops = folds * prod(dim.hint for dim in program.shape)
    for result in program.results:
        shape = program.result_shape(result.extent)
        flops += operations(result.value) * prod(dim.hint for dim in shape)
    return Work(flops=flops)


def _same_text(kernel: Kernel) -> object:
    program = kernel.anchored(RowProgram)
    folds = [(fold.op, fold.totals) for fold in program.folds]
    extents = [result.extent for result in program.results]
    untold = untold_sizes(program.shape, (*kernel.operands, *kernel.outputs))
    ones = tuple(map(program.are_ones, kernel.operands))
    sizes = (len(program.shape), untold, program.is_short, ones)
    expressions = [str(expr) for expr in kernel.expressions]
    own = (kernel.config, kernel.pairs, kernel.moments)
    return (expressions, program.dims, sizes, folds, extents, own)


def _describe(kernel: Kernel) -> Description:
    program = kernel.anchored(RowProgram)
    shape = ", ".join(map(str, program.shape))
    what = f" of [{shape}] along {', '.join(map(str, program.dims))}"
    return Description(what=what, computes=tuple(_computations(kernel)))


def _computations(kernel: Kernel) -> Iterator[str]:
    program = kernel.anchored(RowProgram)
    first = 0
    for fold in program.folds:
        names = [f"total{first + i}" for i in range(len(fold.totals))]
        first += len(fold.totals)
        yield f"{', '.join(names)} = {fold.op} of {fold.value}"
    for result, output in zip(program.results, kernel.outputs, strict=True):
        yield f"{output} = {result.value}"


def _apart(first: Kernel, second: Kernel) -> str:
    one, two = first.anchor, second.anchored(RowProgram)
    if not isinstance(one, RowProgram):
        return "a row of the second is made by many blocks of the first"
    if one.dims == two.dims and one.shape == two.shape:
        return "together they would have too many operands or results"
    return "the second reduces other rows than the first, and no block holds both"


def _alone(kernel: Kernel, place: int, own: set[int]) -> bool:
    program = kernel.anchored(RowProgram)
    others: list[Expr] = [fold.value for fold in program.folds]
    others += [it.value for number, it in enumerate(program.results) if number != place]
    mentioned = {part.index for it in others for part in walk(it) if isinstance(part, Operand)}
    return program.results[place].extent is Extent.ROW and own.isdisjoint(mentioned)


def _extreme_of_rows(kernel: Kernel) -> Reduction | None:
    """The extreme of each row that a kernel finds in its input, where it does nothing else."""
    program = kernel.anchored(RowProgram)
    if len(kernel.inputs) != 1:
        return None
    if program.dims != (len(program.shape) - 1,) or len(program.folds) != 1:
        return None
    (fold,), results = program.folds, program.results
    if (
        fold.op not in (Reduction.MAXIMUM, Reduction.MINIMUM)
        or not isinstance(fold.value, Operand)
        or len(results) != 1
    ):
        return None
    is_bare = isinstance(results[0].value, Total) and results[0].extent is Extent.ROW
    return fold.op if is_bare and fold.totals == (kernel.output.dtype,) else None


ROWS = Family(
    name="rows",
    nodes=(Reduce,),
    grow=_grow,
    launch=_launch,
    why_not=computed,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    holds="the second can start only when the first has seen whole rows",
    alone=_alone,
    extreme_of_rows=_extreme_of_rows,
)
