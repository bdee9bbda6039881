"""What a view does to the layout of a tensor: whether strides say it, and what is left in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.ir.kinds import Permute, Reshape, Select, Slice, Squeeze, Unsqueeze, ViewMap
from kernelwright.ir.sizes import are_equal
from kernelwright.ir.types import Dim, TensorType

MAX_RANK = 8
"""Dimensions of a tensor in a native call (kernels/common/launch.cuh)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is known of a tensor's memory before it is there."""

    type: TensorType
    is_contiguous: bool
    """Whether its elements are known to lie in row-major order."""


def layout_of(how: ViewMap, source: Layout, kind: TensorType) -> Layout | None:
    """The layout of a view of type `kind`; None where it might be a copy."""
    is_copy = isinstance(how, Reshape) and not only_splits(source.type.shape, kind.shape)
    if is_copy and not source.is_contiguous:
        return None
    in_order = source.is_contiguous and _keeps_order(how, kind)
    return Layout(type=kind, is_contiguous=in_order)


def only_splits(source: Sequence[Dim], result: Sequence[Dim]) -> bool:
    """Whether each dimension of the result is known to be part of one dimension of the source."""
    rest = [dim for dim in result if dim.text != "1"]
    for dim in source:
        count = next((n for n in range(len(rest) + 1) if are_equal(rest[:n], [dim])), None)
        if count is None:
            return False
        del rest[:count]
    return not rest


def _keeps_order(how: ViewMap, kind: TensorType) -> bool:
    """Whether a view of elements in order has them in order."""
    match how:
        case Reshape() | Unsqueeze() | Squeeze():
            return True
        case Permute(dims):
            return dims == tuple(range(len(dims)))
        case Slice(dim, _, _, 1) | Select(dim, _):
            return all(size.text == "1" for size in kind.shape[:dim])
    return False
