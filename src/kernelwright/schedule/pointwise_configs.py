"""Configurations of pointwise kernels, best first as measured (docs/measured/streaming.md)."""

from collections.abc import Sequence
from itertools import product

from kernelwright.ir.configs import PointwiseConfig
from kernelwright.ir.types import TensorType, ValueType, one_for_each_line

_UNROLLS = (1, 2, 4)
_UNROLLS_OF_LINES = (2, 1, 4)
"""Unrolls where a block begins with finding its line."""


def pointwise_configs(
    inputs: Sequence[ValueType], output: TensorType
) -> tuple[PointwiseConfig, ...]:
    """Configurations of a kernel with these inputs and this result, best first; at least one."""
    narrowest = min(it.dtype.itemsize for it in (output, *inputs) if isinstance(it, TensorType))
    # One access moves 16 bytes of the narrowest type; more than 8 elements cost registers.
    width = min(8, 16 // narrowest)
    unrolls = _UNROLLS_OF_LINES if one_for_each_line(inputs, output) else _UNROLLS
    return tuple(
        PointwiseConfig(threads=threads, width=width, unroll=unroll)
        for unroll, threads in product(unrolls, (128, 256, 512))
    )
