"""Translated CUDA to a shared library, with the host's C++ compiler and nothing of CUDA.

    unit = Unit(name="scale", parts=(Part("cuda.cu", translate(source)),), headers=Headers.CUDA)
    load_runtime()
    library = ctypes.CDLL(str(compile_unit(unit)))

The compiler calls a function before every memory access (-fsanitize=thread); those functions are in
the emulator's runtime library, so units are linked without the compiler's own. What was compiled
once lies in the cache.
"""

import ctypes
import importlib.metadata
import importlib.util
import platform
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelwright import env
from kernelwright.emulator.headers import Headers
from kernelwright.errors import CompileError
from kernelwright.toolchain.cache import cached_build, content_key, write_log
from kernelwright.toolchain.compilers import Tool, require_cxx
from kernelwright.toolchain.messages import first_error, locate

_HERE = Path(__file__).parent
INCLUDE = _HERE / "include"
"""The headers that stand for the CUDA toolkit's."""
_SHIM = _HERE / "torch_shim"
_RUNTIME = _HERE / "runtime"
_RUNTIME_LIBRARY = "libkwemu.so"
_ALLOCATOR_LIBRARY = "libkwemu_torch.so"
_ALLOCATOR_SOURCE = "torch_allocator.cpp"
_POSITION_SOURCE = "position.cpp"
"""Writes what is constant to all others, and is compiled apart from them."""
_PRELUDE = "prelude.h"

_COMMON_FLAGS = ("-std=c++20", "-fPIC", "-pipe")
_RUNTIME_FLAGS = ("-O2", "-g1", "-fvisibility=hidden", "-pthread")
# One line of source per access (-g1), whole accesses only (no vectorising), and every product
# rounded, except where the source asks for a fused one (which -mfma makes one instruction).
# To compile takes longer than to run, mostly, and less by -Og than by -O1. Each variable has
# its own place in the stack: what the emulator tracks as a warp's registers is nothing else before.
_UNIT_FLAGS = (
    *("-Og", "-g1", "-w"),
    *("-fstack-reuse=none", "-fno-tree-vectorize", "-ffp-contract=off"),
)
_CHECKED_FLAGS = (
    "-fsanitize=thread",
    *("--param", "tsan-instrument-func-entry-exit=0"),
    *("--param", "tsan-distinguish-volatile=1"),
)
_LINK_FLAGS = ("-shared", "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=__assert_fail")
_TORCH_LIBRARIES = ("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")


_PRELUDES = {
    Headers.CUDA: "#include <cuda_runtime.h>\n",
    Headers.TORCH: "#include <torch/extension.h>\n#include <cuda_runtime.h>\n",
    Headers.TORCH_ALL: (
        "#define KWEMU_ALL_OF_TORCH\n#include <torch/extension.h>\n#include <cuda_runtime.h>\n"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One source file of a unit."""

    file: str
    """Its name: "cuda.cu"."""
    text: str
    """What the compiler gets, as many lines as `source`."""
    source: str
    """What the user wrote."""
    compiled: bool = True
    """False for a header, which other parts include."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What becomes one shared library."""

    name: str
    """Name of the library's file, and of the folder of its parts in messages."""
    parts: tuple[Part, ...]
    headers: Headers
    flags: tuple[str, ...] = ()
    """The user's: -D, -I, -std and the like."""
    link_flags: tuple[str, ...] = ()
    candidate: Path | None = None
    """The Python file that carries the sources, where there is one: errors name its lines."""


@cache
def load_runtime() -> ctypes.CDLL:
    """The emulator's runtime library, built if it must be, loaded for every unit to find."""
    runtime = ctypes.CDLL(str(_runtime_library()), mode=ctypes.RTLD_GLOBAL)
    runtime.kwemu_findings.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    runtime.kwemu_findings.restype = ctypes.c_size_t
    runtime.kwemu_launches.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    runtime.kwemu_launches.restype = ctypes.c_size_t
    runtime.kwemu_configure.argtypes = [ctypes.c_char_p]
    runtime.kwemu_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    runtime.kwemu_unregister.argtypes = [ctypes.c_void_p]
    runtime.kwemu_launch_count.restype = ctypes.c_ulonglong
    return runtime


@cache
def load_allocator() -> ctypes.CDLL:
    """The library with PyTorch's checking allocator; PyTorch must be loaded."""
    load_runtime()
    allocator = ctypes.CDLL(str(_allocator_library()))
    allocator.kwemu_torch_allocator.restype = ctypes.c_void_p
    return allocator


def build_shared(headers: Headers = Headers.CUDA) -> None:
    """Build what units with these headers need and no unit changes: the libraries and the headers.

    PyTorch's headers take half a minute and half a gigabyte.
    """
    compiler = require_cxx()
    _runtime_library()
    _allocator_library()
    _prelude(headers, _flags_of_units(headers), compiler)


def compile_unit(unit: Unit) -> Path:
    """The unit's shared library, <unit.name>.so, from the cache or compiled.

    Raises NoCompilerError without a C++ compiler; CompileError with the compiler's first message,
    the line that the user wrote, and the log.
    """
    compiler = require_cxx()
    flags = _flags_of_units(unit.headers)
    prelude = _prelude(unit.headers, flags, compiler)
    texts = [text for part in unit.parts for text in (part.file, part.text)]
    key = content_key(
        *("unit", unit.name, str(prelude), compiler.version, _headers_fingerprint()),
        *(*_COMMON_FLAGS, *flags, *unit.flags, *unit.link_flags, *texts),
    )
    library = f"{unit.name}.so"

    def build(folder: Path) -> None:
        job = _Job(compiler, folder, key, unit)
        before = ("-include", str(prelude))
        objects = _objects(job, (*_COMMON_FLAGS, *before, *flags, *unit.flags, *_paths(folder)))
        linked = (*_LINK_FLAGS, *_torch_link_flags(unit.headers), *unit.link_flags)
        job.run([*objects, *linked, "-o", library])
        for path in objects:
            (folder / path).unlink()

    return cached_build("unit", key, build) / library


@dataclass(frozen=True, slots=True)
class _Job:
    """A folder to compile in, and whom to blame."""

    compiler: Tool
    folder: Path
    key: str
    unit: Unit

    def run(self, arguments: Sequence[str]) -> None:
        """Run the compiler; CompileError if it refuses."""
        refusal = self.refusal(arguments)
        if refusal:
            raise self._error(refusal)

    def refusal(self, arguments: Sequence[str]) -> str:
        """The command and what the compiler said if it refuses, else nothing."""
        command = [str(self.compiler.path), *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode == 0:
            return ""
        output = done.stdout.decode(errors="replace")
        return f"{' '.join(command)}\nexit status {done.returncode}\n\n{output}"

    def _error(self, output: str) -> CompileError:
        log = write_log("unit", self.key, output)
        message = first_error(output)
        text = message.text if message else "the C++ compiler failed"
        location = None
        if message is not None and message.file is not None and message.line is not None:
            location = self._location(message.file, message.line)
        return CompileError(f"{self.unit.name}: {text}", location=location, log_path=log)

    def _location(self, file: str, line: int) -> str:
        """The candidate's own line, or the line of the part, as "scale/cuda.cu:12"."""
        for part in self.unit.parts:
            if file == f"{self.unit.name}/{part.file}" and self.unit.candidate is not None:
                place = locate(self.unit.candidate, part.source, line)
                return place or f"{file}:{line} of {self.unit.candidate}"
        return f"{file}:{line}"


def _objects(job: _Job, flags: Sequence[str]) -> list[str]:
    """Compile the parts together, or apart where they do not go together."""
    unit = job.unit
    (job.folder / unit.name).mkdir()
    for part in unit.parts:
        path = job.folder / unit.name / part.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part.text)
    files = [f"{unit.name}/{part.file}" for part in unit.parts if part.compiled]
    order = list(range(len(files)))
    if len(files) > 1:
        # The headers of PyTorch are most of the work: once for all parts, if that succeeds.
        (job.folder / "together.cpp").write_text("".join(f'#include "{f}"\n' for f in files))
        refusal = job.refusal([*flags, "-c", "together.cpp", "-o", "together.o"])
        if not refusal:
            return ["together.o"]
        # Mostly one is wrong by itself: it comes first, and then no other need be compiled.
        message = first_error(refusal)
        order.sort(key=lambda number: message is None or files[number] != message.file)
    for number in order:
        job.run([*flags, "-c", "-x", "c++", files[number], "-o", f"{number}.o"])
    return [f"{number}.o" for number in sorted(order)]


def _runtime_library() -> Path:
    apart = (_ALLOCATOR_SOURCE, _POSITION_SOURCE)
    sources = [path for path in sorted(_RUNTIME.glob("*.cpp")) if path.name not in apart]
    # Headers are most of the work: once for as many sources as there are to each core.
    cores = min(env.usable_cores(), len(sources))
    together = [sources[first::cores] for first in range(cores)]
    flags = (*_COMMON_FLAGS, *_RUNTIME_FLAGS, f"-I{INCLUDE}", f"-I{_RUNTIME}")
    linked = ("-shared", "-pthread", "-ldl")
    return _library(_RUNTIME_LIBRARY, [*together, [_RUNTIME / _POSITION_SOURCE]], flags, linked)


def _allocator_library() -> Path:
    flags = (*_COMMON_FLAGS, *_RUNTIME_FLAGS, f"-I{INCLUDE}", *_torch_include_flags())
    linked = ("-shared", f"-L{_torch_folder() / 'lib'}", "-lc10")
    return _library(_ALLOCATOR_LIBRARY, [[_RUNTIME / _ALLOCATOR_SOURCE]], flags, linked)


def _library(
    name: str, units: Sequence[Sequence[Path]], flags: Sequence[str], link_flags: Sequence[str]
) -> Path:
    """A library of the emulator itself: its units, of one source or several, side by side."""
    compiler = require_cxx()
    fingerprint = _fingerprint(INCLUDE, _RUNTIME)
    key = content_key(name, compiler.version, fingerprint, *flags, *link_flags)

    def build(folder: Path) -> None:
        unit = Unit(name=name, parts=(), headers=Headers.CUDA)
        job = _Job(compiler, folder, key, unit)

        def compile_one(sources: Sequence[Path]) -> str:
            stem = sources[0].stem
            together = folder / f"{stem}.together.cpp"
            together.write_text("".join(f'#include "{source}"\n' for source in sources))
            job.run([*flags, *_paths(folder), "-c", together.name, "-o", f"{stem}.o"])
            together.unlink()
            return f"{stem}.o"

        with ThreadPoolExecutor(max_workers=env.usable_cores()) as pool:
            objects = list(pool.map(compile_one, units))
        job.run([*objects, *link_flags, f"-Wl,-soname,{name}", "-o", name])
        for path in objects:
            (folder / path).unlink()

    return cached_build("emulator", key, build) / name


def _prelude(headers: Headers, flags: Sequence[str], compiler: Tool) -> Path:
    """The header that comes first, with what the compiler made of it beside it."""
    text = _PRELUDES[headers]
    every = (*_COMMON_FLAGS, *flags)
    key = content_key("prelude", text, compiler.version, _headers_fingerprint(), *every)

    def build(folder: Path) -> None:
        (folder / _PRELUDE).write_text(text)
        unit = Unit(name="headers", parts=(), headers=headers)
        job = _Job(compiler, folder, key, unit)
        if headers is not Headers.TORCH_ALL:  # seldom needed, and almost a gigabyte
            made = f"{_PRELUDE}.gch"
            job.run([*every, *_paths(folder), "-x", "c++-header", _PRELUDE, "-o", made])

    return cached_build("headers", key, build) / _PRELUDE


def _flags_of_units(headers: Headers) -> tuple[str, ...]:
    return (*_UNIT_FLAGS, *_CHECKED_FLAGS, *_processor_flags(), *_torch_flags(headers))


def _torch_flags(headers: Headers) -> tuple[str, ...]:
    if headers is Headers.CUDA:
        return (f"-I{INCLUDE}",)
    return (f"-I{_SHIM}", f"-I{INCLUDE}", *_torch_include_flags())


@cache
def _torch_include_flags() -> tuple[str, ...]:
    include = _torch_folder() / "include"
    folders = (include, include / "torch/csrc/api/include", sysconfig.get_path("include"))
    # The version is in the flags, and so in every key: the headers may change under their path.
    version = importlib.metadata.version("torch")
    # What is compiled for PyTorch is for a process that has it loaded.
    from torch._C import _GLIBCXX_USE_CXX11_ABI as NEW_STRINGS

    return (
        *(f"-isystem{folder}" for folder in folders),
        f'-DKWEMU_TORCH_VERSION="{version}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={int(NEW_STRINGS)}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
    )


def _torch_link_flags(headers: Headers) -> tuple[str, ...]:
    if headers is Headers.CUDA:
        return ()
    return (f"-L{_torch_folder() / 'lib'}", *_TORCH_LIBRARIES)


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError("PyTorch is not installed")
    return Path(spec.origin).parent


def _paths(folder: Path) -> tuple[str, ...]:
    """How files are called in debugging information.

    The unit's own by relative names. Those of PyTorch and of the C++ library as parts of the
    emulator's headers: where one of their functions was inlined, the caller's line is meant.
    """
    theirs = (_torch_folder() / "include", Path("/usr/include"))
    return (
        f"-ffile-prefix-map={folder}=.",
        *(f"-ffile-prefix-map={path}=/emulator/include{path}" for path in theirs),
    )


@cache
def _processor_flags() -> tuple[str, ...]:
    """-mfma where the processor has fused multiply-add, which device code relies on."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    words = Path("/proc/cpuinfo").read_text().split()
    return ("-mfma",) if "fma" in words else ()


def _headers_fingerprint() -> str:
    """Hash of the headers that units include."""
    return _fingerprint(INCLUDE, _SHIM)


@cache
def _fingerprint(*folders: Path) -> str:
    """Hash of all the files of these folders of ours."""
    texts: list[bytes] = []
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            texts += [str(path.relative_to(_HERE)).encode(), path.read_bytes()]
    return content_key(*texts)
