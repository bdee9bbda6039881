"""Arguments and results in memory that several processes share."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from kernelwright.worker.timer.records import SharedTensor, TensorForm

_ALIGNMENT = 512
"""Bytes: where PyTorch's own allocator begins every tensor."""

DTYPES: Mapping[str, torch.dtype] = {
    str(dtype): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}


class NotShareableError(ValueError):
    """These arguments or results cannot be handed from one process to another."""


class Memory(Protocol):
    """What sharing needs of a device; `timer_driver.Driver` is the one on a GPU."""

    def extent(self, address: int) -> tuple[int, int]:
        """Start and size of the allocation around an address."""
        ...

    def share(self, address: int) -> tuple[str, int]:
        """A handle of the allocation, and how far in the address lies."""
        ...

    def open(self, handle: str) -> int:
        """Address here of another process's allocation."""
        ...

    def close(self, address: int) -> None:
        """Undo `open`."""
        ...

    def bytes_at(self, address: int, size: int) -> Tensor:
        """Memory as a flat uint8 tensor, which does not own it."""
        ...


def lay_out(arguments: Sequence[object]) -> tuple[list[TensorForm], str, int]:
    """Forms of the tensors of `arguments`, the template without them, and the bytes of all.

    NotShareableError for what is neither a tensor, a plain value nor a container of them.
    """
    forms: list[TensorForm] = []
    end = 0

    def place(tensor: Tensor) -> int:
        nonlocal end
        if str(tensor.dtype) not in DTYPES or tensor.layout is not torch.strided:
            raise NotShareableError(f"an argument is a {tensor.layout} tensor of {tensor.dtype}")
        size = extent_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        forms.append(
            TensorForm(
                dtype=str(tensor.dtype),
                shape=tuple(tensor.shape),
                strides=tuple(tensor.stride()),
                place=end,
                extent=size,
            )
        )
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return len(forms) - 1

    template = json.dumps([_template(value, place) for value in arguments])
    return forms, template, end


def extent_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes from the first element to the end of the last one."""
    if 0 in shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (last + 1) * dtype.itemsize


def _template(value: object, place: Callable[[Tensor], int]) -> Any:
    match value:
        case Tensor():
            return {"tensor": place(value)}
        case None | bool() | int() | float() | str():
            return {"value": value}
        case list():
            return {"list": [_template(item, place) for item in value]}
        case tuple() if type(value) is tuple:
            return {"tuple": [_template(item, place) for item in value]}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {key: _template(item, place) for key, item in value.items()}}
    raise NotShareableError(f"an argument is a {type(value).__name__}")


def fill_in(template: str, tensors: Sequence[Tensor]) -> list[object]:
    """The arguments of a template."""
    return [_filled(value, tensors) for value in json.loads(template)]


def _filled(value: dict[str, Any], tensors: Sequence[Tensor]) -> object:
    match value:
        case {"tensor": number}:
            return tensors[number]
        case {"list": items}:
            return [_filled(item, tensors) for item in items]
        case {"tuple": items}:
            return tuple(_filled(item, tensors) for item in items)
        case {"dict": items}:
            return {key: _filled(item, tensors) for key, item in items.items()}
    return value["value"]


def view_at(memory: Memory, base: int, form: TensorForm) -> Tensor:
    """The tensor of `form` in inputs that begin at `base`."""
    flat = memory.bytes_at(base + form.place, form.extent).view(DTYPES[form.dtype])
    return flat.as_strided(form.shape, form.strides)


def share_tensor(memory: Memory, name: str, tensor: Tensor) -> SharedTensor:
    """How another process finds a tensor on the device."""
    handle, place = memory.share(tensor.data_ptr()) if tensor.numel() else ("", 0)
    return SharedTensor(
        name=name,
        dtype=str(tensor.dtype),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        handle=handle,
        place=place,
    )


def size_of(shared: SharedTensor) -> int:
    """Bytes that the elements of a shared tensor take; those that are repeated count once."""
    sizes = [size for size, stride in zip(shared.shape, shared.strides, strict=True) if stride]
    return math.prod(sizes) * DTYPES[shared.dtype].itemsize if 0 not in shared.shape else 0


@contextmanager
def borrowed(memory: Memory, tensors: Sequence[SharedTensor]) -> Iterator[list[Tensor]]:
    """Other processes' tensors, for the length of the block.

    What they say of themselves is checked against the allocation: NotShareableError.
    """
    opened: dict[str, int] = {}
    try:
        for shared in tensors:
            if shared.handle and shared.handle not in opened:
                opened[shared.handle] = memory.open(shared.handle)
        yield [_borrow(memory, opened, it) for it in tensors]
    finally:
        for address in opened.values():
            memory.close(address)


class Mappings:
    """Other processes' allocations, mapped here for as long as they are asked for again and again.

    Each mapping and unmapping waits for the driver's lock, behind whatever the other processes of
    the machine allocate: with a hundred results that lie where the ones before lay, this is most
    of the time that looking at them takes.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._opened: dict[str, int] = {}
        self._used: set[str] = set()

    def borrow(self, tensors: Sequence[SharedTensor]) -> list[Tensor]:
        """Other processes' tensors, until their allocations are dropped.

        Raises as `borrowed` does.
        """
        for handle in filter(None, (it.handle for it in tensors)):
            if handle not in self._opened:
                self._opened[handle] = self._memory.open(handle)
            self._used.add(handle)
        return [_borrow(self._memory, self._opened, it) for it in tensors]

    def drop_unused(self) -> None:
        """Unmap what nobody has borrowed since this was called last."""
        self.drop(self._opened.keys() - self._used)
        self._used.clear()

    def drop(self, handles: Collection[str]) -> None:
        """Unmap these, of which nothing is in use any more."""
        for handle in handles:
            if handle in self._opened:
                self._memory.close(self._opened.pop(handle))


def _borrow(memory: Memory, opened: Mapping[str, int], shared: SharedTensor) -> Tensor:
    dtype = DTYPES.get(shared.dtype)
    whole = len(shared.shape) == len(shared.strides)
    if dtype is None or not whole or min((*shared.shape, *shared.strides), default=0) < 0:
        raise NotShareableError(f"{shared.name} is no tensor that can be shared")
    size = extent_of(shared.shape, shared.strides, dtype)
    if not size or not shared.handle:
        return memory.bytes_at(0, 0).view(dtype).reshape(shared.shape)
    base = opened[shared.handle]
    _, allocated = memory.extent(base)
    if shared.place < 0 or shared.place + size > allocated:
        raise NotShareableError(f"{shared.name} does not lie in its allocation")
    flat = memory.bytes_at(base + shared.place, size).view(dtype)
    return flat.as_strided(shared.shape, shared.strides)
