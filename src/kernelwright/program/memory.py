"""What a view does to memory: whether strides say it, and whether its elements stay in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.ir.kinds import Permute, Reshape, Select, Slice, Squeeze, Unsqueeze, ViewMap
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, TensorType

MAX_RANK = 8
"""Dimensions of a tensor in a native call (kernels/common/launch.cuh)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is certain of a tensor's memory before it is there, in any call."""

    type: TensorType
    is_contiguous: bool
    """Whether its elements are known to lie in row-major order, without gaps."""


def memory_of_view(how: ViewMap, source: Memory, kind: TensorType) -> Memory | None:
    """The memory of a view of type `kind`; None where it might be a copy."""
    is_copy = isinstance(how, Reshape) and not only_splits(source.type.shape, kind.shape)
    if is_copy and not source.is_contiguous:
        return None
    in_order = source.is_contiguous and _keeps_order(how, kind)
    return Memory(type=kind, is_contiguous=in_order)


def only_splits(source: Sequence[Dim], result: Sequence[Dim]) -> bool:
    """Whether each dimension of the result is known to be part of one dimension of the source."""
    pairs = regroup(source, result)
    return pairs is not None and all(sum(dim != ONE for dim in own) <= 1 for own, _ in pairs)


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
