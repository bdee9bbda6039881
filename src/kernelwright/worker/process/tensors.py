"""Tensors between processes: raw bytes in a private folder, described by JSON headers."""

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.verify.fingerprint import raw_bytes
from kernelwright.verify.waiting import on_the_host

_DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
}

_MEMORY_FOLDER = Path("/dev/shm")
_ENOUGH_MEMORY = 16 << 30
"""Bytes free in /dev/shm for tensors to go there; otherwise the folder for temporary files."""


_CHUNK = 256 << 20
"""Bytes copied together from a device."""


_SMALL = 1 << 20
"""Bytes up to which tensors are copied together with others."""


class TensorFileError(ValueError):
    """A header or its file is not what it has to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """Where a tensor's bytes are and how to read them."""

    name: str
    """Which tensor: "output[0]"."""
    file: str
    """Plain file name inside the folder of the conversation; contiguous, native byte order."""
    dtype: str
    shape: tuple[int, ...]


def make_exchange_folder() -> Path:
    """A new folder that only this user can read, in memory where there is room."""
    parent = None
    if _MEMORY_FOLDER.is_dir() and shutil.disk_usage(_MEMORY_FOLDER).free > _ENOUGH_MEMORY:
        parent = _MEMORY_FOLDER
    return Path(tempfile.mkdtemp(prefix="kernelwright-", dir=parent))


def write_tensor(folder: Path, file: str, name: str, tensor: Tensor) -> TensorHeader:
    """Write `tensor` (any strides, any device) and return its header."""
    return write_tensors(folder, [(file, name, tensor)])[0]


def write_tensors(
    folder: Path, named: Sequence[tuple[str, str, Tensor]]
) -> tuple[TensorHeader, ...]:
    """Write tensors, each with the file and the name before it, and return their headers."""
    for _, name, tensor in named:
        if str(tensor.dtype) not in _DTYPES:
            raise TensorFileError(f"{name} is {tensor.dtype}, which cannot be compared")
    flats = _small_ones_on_the_host([raw_bytes(tensor) for _, _, tensor in named])
    for (file, _, _), flat in zip(named, flats, strict=True):
        with (folder / file).open("wb") as output:
            for chunk in torch.split(flat, _CHUNK):
                output.write(chunk.cpu().numpy().data)
    return tuple(
        TensorHeader(name=name, file=file, dtype=str(tensor.dtype), shape=tuple(tensor.shape))
        for file, name, tensor in named
    )


def _small_ones_on_the_host(flats: Sequence[Tensor]) -> list[Tensor]:
    """Their bytes on the host; large ones are brought in pieces, each when it is written."""
    is_small = [flat.numel() <= _SMALL for flat in flats]
    brought = iter(on_the_host(list(compress(flats, is_small))))
    return [next(brought) if small else flat for flat, small in zip(flats, is_small, strict=True)]


def read_tensor(folder: Path, header: TensorHeader) -> Tensor:
    """The tensor of `header`, on the CPU, mapped from its file; the file may go afterwards."""
    dtype = _DTYPES.get(header.dtype)
    if dtype is None or min(header.shape, default=0) < 0 or Path(header.file).name != header.file:
        raise TensorFileError(f"{header} describes no tensor")
    path = folder / header.file
    size = math.prod(header.shape) * dtype.itemsize
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        raise TensorFileError(f"{header.name}: {path} does not hold {size} bytes")
    if size == 0:
        return torch.empty(header.shape, dtype=dtype)
    flat = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return flat.view(dtype).reshape(header.shape)
