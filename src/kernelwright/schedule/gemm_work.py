"""Work of a matrix product: its multiplications, and the share of them that is kept."""

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


def contraction_flops(contract: Contract, inputs: tuple[ValueType, ...]) -> int:
    """Two for each combination of the contraction's letters."""
    sizes: dict[str, int] = {}
    for labels, kind in zip((contract.lhs, contract.rhs), inputs, strict=False):
        assert isinstance(kind, TensorType)
        sizes.update(zip(labels, (dim.hint for dim in kind.shape), strict=True))
    product = 2
    for size in sizes.values():
        product *= size
    return product
