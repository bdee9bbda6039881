"""Which kernels make moments of the columns of their results, in how many parts, and which norms
can begin with them (column_moments.py)."""

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.expr import Operand
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel
from kernelwright.ir.row_configs import ColumnPartRows, RowConfig
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.schedule.families import family_of
from kernelwright.schedule.families.rows import ROWS

_STATE_WORDS = 3
"""`MOMENT_WORDS`: count, mean, and the sum of squared distances from it."""
_MOST_PARTS = 512
"""`MOST_GIVEN`: more take a kernel of totals longer than it takes another to make fewer."""
_MOST_PARTS_JOINED = 80
"""Likewise where every block that writes results makes totals, so that each reads all parts: with
123 in each a DenseNet121 was slower than with a kernel before each norm, with 31 as fast
(docs/measured/launches.md)."""


def moments_of(kernel: Kernel) -> TensorType | None:
    """The type of the moments that a kernel can make beside its result in this configuration; None
    where it can make none."""
    parts = family_of(kernel).moment_parts(kernel)
    if parts is None:
        return None
    return TensorType(DType.F32, (parts, kernel.output.shape[-1], Dim.static(_STATE_WORDS)))


def most_parts(norm: Kernel) -> int:
    """In how many parts moments are worth reading for a norm."""
    way = norm.configured(RowConfig).tuned
    is_joined = isinstance(way, ColumnPartRows) and way.joined
    return _MOST_PARTS_JOINED if is_joined else _MOST_PARTS


def normalised(kernel: Kernel) -> int | None:
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
