"""Finding the compilers and tools of this machine, and asking them who they are.

    nvcc = require_nvcc()
    subprocess.run([nvcc.path, ...])

PyTorch's `load_inline` looks for CUDA in CUDA_HOME, then on PATH, then in /usr/local/cuda. We look
in the same order, so that tuning compiles with what the winner is compiled with, and after that in
the `nvidia` wheels of pip. A tool that does not say its version does not count as found.
"""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from kernelwright import env
from kernelwright.errors import NoCompilerError

_ANSWER_SECONDS = 20.0
"""A tool that does not say its version in this time is broken (a wrapper on a dead disk)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that was found and that answers."""

    name: str
    """What it is: "nvcc", "g++"."""
    path: Path
    version: str
    """As it says itself: "13.0.88"."""
    origin: str
    """Where we looked when we found it: "PATH", "CUDA_HOME"."""

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.path}, from {self.origin})"


def find_nvcc() -> Tool | None:
    """The CUDA compiler, with its headers beside it."""
    named = env.NVCC.get()
    if named is not None:
        return _tool("nvcc", named, env.NVCC.name)
    tools = (_tool("nvcc", path, origin) for origin, path in _nvcc_places())
    return next((tool for tool in tools if tool and cuda_home(tool)), None)


def require_nvcc() -> Tool:
    """The CUDA compiler; raises NoCompilerError if there is none."""
    named = env.NVCC.get()
    tool = find_nvcc()
    if tool is None and named is not None:
        raise NoCompilerError(f"{env.NVCC.name} names {named}, which is no CUDA compiler")
    if tool is None:
        raise NoCompilerError(
            "no CUDA compiler (nvcc) in CUDA_HOME, on PATH, in /usr/local/cuda or in pip's wheels"
        )
    return tool


def cuda_home(nvcc: Tool) -> Path | None:
    """The install folder that `nvcc` belongs to, as PyTorch wants it in CUDA_HOME.

    None if its headers are missing: an nvcc that can compile nothing.
    """
    for line in _output(nvcc.path, "--dryrun", "-x", "cu", "/dev/null").splitlines():
        # nvcc itself says where its home is, also through links and wrapper scripts.
        name, _, value = line.removeprefix("#$ ").partition("=")
        if name == "TOP":
            home = Path(value).resolve()
            return home if (home / "include" / "cuda_runtime.h").is_file() else None
    return None


def find_cxx() -> Tool | None:
    """The host C++ compiler: KERNELWRIGHT_CXX, CXX, g++, clang++, c++."""
    for variable in (env.CXX, env.HOST_CXX):
        named = variable.get()
        if named is not None:
            return _tool(named.name, Path(shutil.which(named) or named), variable.name)
    tools = (_first(name, [("PATH", shutil.which(name))]) for name in ("g++", "clang++", "c++"))
    return next((tool for tool in tools if tool), None)


def require_cxx() -> Tool:
    """The host C++ compiler; raises NoCompilerError if there is none."""
    tool = find_cxx()
    if tool is not None:
        return tool
    for variable in (env.CXX, env.HOST_CXX):
        named = variable.get()
        if named is not None:
            raise NoCompilerError(f"{variable.name} names {named}, which is no C++ compiler")
    raise NoCompilerError(
        "no C++ compiler (g++, clang++ or c++) on PATH",
        next_step="Install one (Debian: apt install g++) or name it in KERNELWRIGHT_CXX.",
    )


def find_ninja() -> Tool | None:
    """ninja, which load_inline runs: on PATH, or beside Python, where pip puts it."""
    beside_python = Path(sys.executable).parent / "ninja"
    return _first("ninja", [("PATH", shutil.which("ninja")), ("Python", beside_python)])


def find_compute_sanitizer() -> Tool | None:
    """NVIDIA's memory and race checker, on PATH or in the folder of nvcc's install."""
    nvcc = find_nvcc()
    home = cuda_home(nvcc) if nvcc else None
    folders = [home / "bin", home / "compute-sanitizer"] if home else []
    places = [("CUDA", folder / "compute-sanitizer") for folder in folders]
    return _first("compute-sanitizer", [("PATH", shutil.which("compute-sanitizer")), *places])


def _nvcc_places() -> Iterator[tuple[str, Path]]:
    for variable in (env.CUDA_HOME, env.CUDA_PATH):
        home = variable.get()
        if home is not None:
            yield variable.name, home / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path is not None:
        yield "PATH", Path(on_path)
    yield "/usr/local/cuda", Path("/usr/local/cuda/bin/nvcc")
    wheels = importlib.util.find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        for path in sorted(Path(folder).glob("*/bin/nvcc"), reverse=True):
            yield "pip", path


def _first(name: str, places: Iterable[tuple[str, str | Path | None]]) -> Tool | None:
    """The first of the places that has the tool; None stands for a place that has nothing."""
    tools = (_tool(name, Path(path), origin) for origin, path in places if path is not None)
    return next((tool for tool in tools if tool), None)


def _tool(name: str, path: Path, origin: str) -> Tool | None:
    # Looked at each time, since it may have been installed meanwhile; who it is does not change.
    version = _version(path) if path.is_file() else ""
    return Tool(name=name, path=path, version=version, origin=origin) if version else None


@cache
def _version(path: Path) -> str:
    """The version a tool says, "" if it says none."""
    numbers = [_number(word) for word in _output(path, "--version").replace(",", " ").split()]
    # nvcc says "release 13.0, V13.0.88": the longest is the whole one, the first among equals.
    return max(numbers, key=lambda number: number.count("."), default="")


def _number(word: str) -> str:
    """The version a word begins with: "V13.0.88" and "1.13.2.git" have one, "2022" has none."""
    parts = tuple(takewhile(str.isdecimal, word.removeprefix("V").split(".")))
    return ".".join(parts) if len(parts) > 1 else ""


@cache
def _output(path: Path, *arguments: str) -> str:
    """What the program prints, "" if it does not start, fails or does not answer."""
    try:
        answer = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode(errors="replace")
