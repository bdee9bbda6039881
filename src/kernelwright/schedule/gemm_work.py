"""Work of a matrix product: its multiplications, and the share of them that is kept."""

from collections.abc import Sequence

from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.kinds import Contract
from kernelwright.ir.types import DType, TensorType, ValueType

PRODUCT_UNITS: dict[DType, tuple[str, ...]] = {
    DType.F32: ("fp16x3",),
    DType.F16: ("fp16",),
    DType.BF16: ("bf16",),
}
"""Units besides the CUDA cores that multiply factors of a type."""


def kept_share(triangle: Triangle | None, output: TensorType) -> float:
    """Share of a result's elements that the epilogue does not set to zero anyway."""
    if triangle is None:
        return 1.0
    rows, columns = (dim.hint for dim in output.shape[-2:])
    # Row r keeps the columns from r + diagonal on, or those up to it.
    before = [min(max(row + triangle.diagonal, 0), columns) for row in range(rows)]
    upto = [min(max(row + triangle.diagonal + 1, 0), columns) for row in range(rows)]
    kept = rows * columns - sum(before) if triangle.kept is Side.UPPER else sum(upto)
    return kept / max(1, rows * columns)


def contraction_sizes(
    contract: Contract, inputs: Sequence[ValueType], output: TensorType
) -> dict[str, int]:
    """The captured size of each of the contraction's letters."""
    left, right = inputs[:2]
    assert isinstance(left, TensorType) and isinstance(right, TensorType)
    shapes = contract.factors(left.shape, right.shape, output.shape)
    letters = zip(contract.lhs + contract.rhs, (*shapes[0], *shapes[1]), strict=True)
    return {letter: dim.hint for letter, dim in letters}


def contraction_flops(contract: Contract, inputs: Sequence[ValueType], output: TensorType) -> int:
    """Two for each combination of the contraction's letters."""
    sizes = contraction_sizes(contract, inputs, output)
    product = 2
    for size in sizes.values():
        product *= size
    return product
