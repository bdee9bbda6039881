"""What a plan says of its kernels."""

from kernelwright.ir.anchors import untold_sizes
from kernelwright.ir.types import Dim, DType, TensorType


def test_sizes_that_no_tensor_tells_are_part_of_a_kernel() -> None:
    rows, three, seven, one = Dim("s0", 2), Dim.static(3), Dim.static(7), Dim.static(1)
    operands = [TensorType(DType.F32, (rows, three, one)), TensorType(DType.F32, (one,))]
    assert untold_sizes((rows, three, seven), operands) == (None, None, seven)
    assert untold_sizes((three, rows, one), operands[1:]) == (three, None, None)
