"""A library that stands between a process and CUDA's launches: it counts them and can drop them.

    environment["LD_PRELOAD"] = str(launches_library())   # before the process starts
    launches = Launches.of_this_process()                 # in it
    launches.silence()

Counted are launches that come from code which is no part of PyTorch or CUDA. See launches.cpp for
what it does not see.
"""

import ctypes
import site
import sysconfig
from pathlib import Path
from typing import Self

from kernelwright.toolchain.compilers import cuda_home, find_nvcc
from kernelwright.toolchain.preloaded import library_of

_SOURCE = Path(__file__).with_name("launches.cpp")


def launches_library() -> Path:
    """The library, compiled by the host's compiler if it is not in the cache.

    Raises NoCompilerError without a compiler, CompileError if it does not compile.
    """
    return library_of(_SOURCE)


class Launches:
    """The library, where it is preloaded into this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.kw_launches_know.argtypes = [ctypes.c_char_p]
        library.kw_launches_silence.argtypes = [ctypes.c_int]
        library.kw_launches_seen.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.kw_launches_seen.restype = ctypes.c_size_t
        library.kw_launches_tell.argtypes = [ctypes.c_void_p]
        library.kw_launches_know("\n".join(known_homes()).encode())

    @classmethod
    def of_this_process(cls) -> Self | None:
        """None where the process was started without it."""
        library = ctypes.CDLL(None)
        return cls(library) if hasattr(library, "kw_launches_know") else None

    def silence(self) -> None:
        """Counted launches do nothing from now on, and succeed."""
        self._library.kw_launches_silence(1)

    def unsilence(self) -> None:
        """Launches happen again."""
        self._library.kw_launches_silence(0)

    def tell(self, hearer: int | None) -> None:
        """After each counted launch, call the C function at this address with name and stream."""
        self._library.kw_launches_tell(hearer)

    def take(self) -> dict[str, int]:
        """Counted launches since the last call, by the demangled name of the kernel."""
        size = self._library.kw_launches_seen(None, 0)
        buffer = ctypes.create_string_buffer(size)
        self._library.kw_launches_seen(buffer, size)
        self._library.kw_launches_forget()
        seen = {}
        for line in buffer.value.decode(errors="replace").splitlines():
            count, _, name = line.partition(" ")
            seen[name] = int(count)
        return seen


def known_homes() -> tuple[str, ...]:
    """Folders of libraries that are nobody's own: Python's packages, and CUDA's."""
    folders = {Path(path) for path in [*site.getsitepackages(), site.getusersitepackages()]}
    folders |= {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    folders.add(_torch_home())
    nvcc = find_nvcc()
    home = cuda_home(nvcc) if nvcc else None
    if home is not None:
        folders.add(home)
    return tuple(sorted(f"{folder.resolve()}/" for folder in folders))


def _torch_home() -> Path:
    import torch

    # Two up: packages that PyTorch brings its CUDA libraries in lie beside it.
    return Path(torch.__file__).resolve().parents[1]
