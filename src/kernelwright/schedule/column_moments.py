"""Moments of the columns of a result for the norm that reads it: the kernel that makes the result
has it in registers, and what the norm's first kernel would read it for is known when it is done.

So it is for products, such as convolutions by place, and for depthwise convolutions of channels
that are last, before a batch norm in training whose maps are small: more rows have more parts than
are worth reading again.
"""

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.configs import ColumnPartRows, RowConfig
from kernelwright.ir.expr import Accumulator, Operand
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract, Reduction
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import Kernel, Launch, Plan, Room, Step
from kernelwright.ir.sizes import pieces, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.schedule.families.gemm import GEMM, moment_rows
from kernelwright.schedule.families.pooling import POOLING, moment_parts
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.roles import Roles, roles

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
    """The steps, in which the norms in `wanted` begin with moments of what they read; None: those
    of so few parts that this is faster."""
    taken = {node.name for node in graph.nodes}
    inside = {step.result for step in steps if isinstance(step, Room)}
    made = {
        step.result: (step, kind)
        for step in steps
        if isinstance(step, Launch)
        and step.result not in inside
        and (kind := moments_of(step.kernel)) is not None
    }
    names: dict[str, str] = {}
    changed: dict[str, Launch] = {}
    for step in steps:
        if not isinstance(step, Launch) or (at := _normalised(step.kernel)) is None:
            continue
        if step.inputs[at] not in made:
            continue
        launch, kind = made[step.inputs[at]]
        is_faster = kind.shape[0].hint <= _most_parts(step.kernel)
        if not (is_faster if wanted is None else step.result in wanted):
            continue
        # Several may read them.
        if launch.result not in names:
            names[launch.result] = fresh_name(f"{launch.result}_moments", taken)
        moments = (names[launch.result], kind)
        changed[launch.result] = _writing(launch, *moments)
        changed[step.result] = _reading(step, *moments)
    return [changed.get(it.result, it) if isinstance(it, Launch) else it for it in steps]


def having_moments(plan: Plan) -> frozenset[str]:
    """The norms that begin with moments of what they read, by their first results."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(
        it.result for it in launches if it.kernel.moments and it.kernel.family == ROWS.name
    )


def with_parts_of_configs(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps whose kernels have other configurations than they were planned with, and with that
    moments in other parts."""
    kinds: dict[str, TensorType] = {}
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and step.kernel.moments:
            kernel = step.kernel
            if kernel.makes_moments:
                kind = moments_of(replace(kernel, moments=False, outputs=kernel.outputs[:-1]))
                assert kind is not None, "the configuration makes moments"
                kinds[step.results[-1]] = kind
                kernel = replace(kernel, outputs=(*kernel.outputs[:-1], kind))
            else:
                kind = kinds[step.inputs[-1]]
                kernel = replace(kernel, inputs=(*kernel.inputs[:-1], kind))
            step = replace(step, kernel=kernel)
        changed.append(step)
    return tuple(changed)


def _writing(launch: Launch, name: str, kind: TensorType) -> Launch:
    kernel = replace(launch.kernel, moments=True, outputs=(*launch.kernel.outputs, kind))
    return replace(launch, kernel=kernel, results=(*launch.results, name))


def _reading(launch: Launch, name: str, kind: TensorType) -> Launch:
    kernel = replace(launch.kernel, moments=True, inputs=(*launch.kernel.inputs, kind))
    return replace(launch, kernel=kernel, inputs=(*launch.inputs, name))


def moments_of(kernel: Kernel) -> TensorType | None:
    """The type of the moments that a kernel can make beside its result, in this configuration; None
    where it can make none."""
    own = {GEMM.name: _product_parts, POOLING.name: moment_parts}.get(kernel.family)
    parts = None if own is None else own(kernel)
    if parts is None:
        return None
    return TensorType(DType.F32, (parts, kernel.output.shape[-1], Dim.static(_STATE_WORDS)))


def _most_parts(norm: Kernel) -> int:
    way = norm.configured(RowConfig).tuned
    is_joined = isinstance(way, ColumnPartRows) and way.joined
    return _MOST_PARTS_JOINED if is_joined else _MOST_PARTS


def _product_parts(kernel: Kernel) -> Dim | None:
    """The parts of a product of float32 in TF32 whose results are its sums."""
    if not kernel.is_whole or kernel.together > 1 or kernel.pairs:
        return None
    rows = moment_rows(kernel.config)
    if rows is None:
        return None
    contract, output = kernel.anchored(Contract), kernel.output
    found = roles(contract)
    assert isinstance(found, Roles), "it has been scheduled as a product"
    columns = output.shape[-1]
    may = (
        contract.may_round
        and kernel.epilogue == Accumulator(DType.F32)
        and output.dtype is DType.F32
        and len(kernel.inputs) == 2
        and not found.swapped
        and found.batch + found.m + found.n == contract.out
        and columns.is_static
        and columns.hint % _LANE_COLUMNS == 0
    )
    return pieces(product(output.shape[:-1]), rows) if may else None


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
