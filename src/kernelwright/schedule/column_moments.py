"""Moments of a product's columns for the norm that reads it: the product's kernel has its results
in registers, and what the norm's first kernel would read them for is known when it is done.

So it is for convolutions by place of small maps, before a batch norm in training: more rows have
more parts than are worth reading again.
"""

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.configs import ColumnPartRows, RowConfig, TensorCoreConfig
from kernelwright.ir.expr import Accumulator, Operand
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract, Reduction
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import Kernel, Launch, Plan, Room, Step
from kernelwright.ir.sizes import product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.schedule.families.gemm import GEMM, makes_moments
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.roles import Roles, roles

_PART_ROWS = 16
"""`MOMENT_ROWS`."""
_STATE_WORDS = 3
"""`MOMENT_WORDS`: count, mean, and the sum of squared distances from it."""
_MOST_PARTS = 512
"""`MOST_GIVEN`: more take a kernel of totals longer than it takes another to make fewer."""
_MOST_PARTS_JOINED = 128
"""Likewise where every block that writes results makes totals: each reads all parts."""
_LANE_COLUMNS = 4
"""`MOMENT_COLUMNS`."""


def with_column_moments(
    graph: Graph, steps: Sequence[Step], wanted: frozenset[str] | None = None
) -> list[Step]:
    """The steps, in which the norms in `wanted` begin with moments of the products that they read;
    None: those of so few parts that this is faster."""
    taken = {node.name for node in graph.nodes}
    inside = {step.result for step in steps if isinstance(step, Room)}
    products = {
        step.result: step
        for step in steps
        if isinstance(step, Launch)
        and step.result not in inside
        and _may_make(step.kernel)
    }
    names: dict[str, str] = {}
    changed: dict[str, Launch] = {}
    for step in steps:
        if not isinstance(step, Launch) or (at := _normalised(step.kernel)) is None:
            continue
        made = products.get(step.inputs[at])
        if made is None:
            continue
        kind = _moments_of(made.kernel.outputs[0])
        is_faster = kind.shape[0].hint <= _most_parts(step.kernel)
        if not (is_faster if wanted is None else step.result in wanted):
            continue
        # Several may read them.
        if made.result not in names:
            names[made.result] = fresh_name(f"{made.result}_moments", taken)
        moments = (names[made.result], kind)
        changed[made.result] = _writing(made, *moments)
        changed[step.result] = _reading(step, *moments)
    return [changed.get(it.result, it) if isinstance(it, Launch) else it for it in steps]


def having_moments(plan: Plan) -> frozenset[str]:
    """The norms that begin with moments of the products that they read, by their first results."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(
        it.result for it in launches if it.kernel.moments and it.kernel.family == ROWS.name
    )


def _writing(launch: Launch, name: str, kind: TensorType) -> Launch:
    kernel = replace(launch.kernel, moments=True, outputs=(*launch.kernel.outputs, kind))
    return replace(launch, kernel=kernel, results=(*launch.results, name))


def _reading(launch: Launch, name: str, kind: TensorType) -> Launch:
    kernel = replace(launch.kernel, moments=True, inputs=(*launch.kernel.inputs, kind))
    return replace(launch, kernel=kernel, inputs=(*launch.inputs, name))


def _moments_of(result: TensorType) -> TensorType:
    rows = product(result.shape[:-1])
    parts = -(-rows.hint // _PART_ROWS)
    text = str(parts) if rows.is_static else f"({rows.text} + {_PART_ROWS - 1})//{_PART_ROWS}"
    words = Dim.static(_STATE_WORDS)
    return TensorType(DType.F32, (Dim(text, parts), result.shape[-1], words))


def _most_parts(norm: Kernel) -> int:
    way = norm.configured(RowConfig).tuned
    is_joined = isinstance(way, ColumnPartRows) and way.joined
    return _MOST_PARTS_JOINED if is_joined else _MOST_PARTS


def _may_make(kernel: Kernel) -> bool:
    """Whether a kernel is a product of float32 in TF32, whose results are its sums."""
    if kernel.family != GEMM.name or not kernel.is_whole or kernel.together > 1 or kernel.pairs:
        return False
    if not isinstance(kernel.config, TensorCoreConfig) or not makes_moments(kernel.config):
        return False
    contract, output = kernel.anchored(Contract), kernel.output
    found = roles(contract)
    assert isinstance(found, Roles), "it has been scheduled as a product"
    columns = output.shape[-1]
    return (
        contract.may_round
        and kernel.epilogue == Accumulator(DType.F32)
        and output.dtype is DType.F32
        and len(kernel.inputs) == 2
        and not found.swapped
        and found.batch + found.m + found.n == contract.out
        and columns.is_static
        and columns.hint % _LANE_COLUMNS == 0
    )


def _normalised(kernel: Kernel) -> int | None:
    """Which input is reduced to moments of its columns by a kernel that takes those of parts."""
    if kernel.family != ROWS.name:
        return None
    program, way = kernel.anchored(RowProgram), kernel.configured(RowConfig).tuned
    if not isinstance(way, ColumnPartRows) or len(program.folds) != 1:
        return None
    (fold,) = program.folds
    match fold.value:
        case Operand(at) if fold.op is Reduction.MOMENTS:
            kind = kernel.inputs[at]
            is_whole = isinstance(kind, TensorType) and kind.shape == program.shape
            is_float = isinstance(kind, TensorType) and kind.dtype is DType.F32
            by_column = program.dims == tuple(range(len(program.shape) - 1))
            return at if is_whole and is_float and by_column else None
    return None
