"""The environment variables kernelwright looks at; no other file reads `os.environ`.

    from kernelwright import env

    seconds = env.LOCK_TIMEOUT.get()
    child = env.child_environment({"TORCH_EXTENSIONS_DIR": str(folder)})

A variable is read each time it is asked for, so a test or a child process that changes it is heard.
`render_settings_table()` writes the table of docs/settings.md. Ten `KERNELWRIGHT_*` at most: what
only one command needs is an option of that command.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from kernelwright.errors import SettingError

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Generic[T_co]):
    """One environment variable: its name, how its text is read, and what holds without it."""

    name: str
    """Name in the environment."""
    parse: Callable[[str], T_co]
    """Reads the text; raises ValueError with what was expected ("a whole number above 0")."""
    default: T_co
    """Value where the variable is unset or empty."""
    default_text: str
    """The default in words, for the docs."""
    doc: str
    """One sentence for the docs."""

    def get(self) -> T_co:
        """The value now.

        Raises SettingError, which names the variable, if the text cannot be read.
        """
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise SettingError(f"{self.name} is {text!r}, expected {error}") from error


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise ValueError("a number of seconds, 0 or more")
    return seconds


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError("one of " + ", ".join(words))
        return text.lower()

    return parse


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _present(text: str) -> bool:
    return bool(text)


CACHE_DIR: Variable[Path | None] = Variable(
    name="KERNELWRIGHT_CACHE_DIR",
    parse=_path,
    default=None,
    default_text="the user's cache folder",
    doc="Folder for everything that is built and for the tuning database.",
)
LOCK_TIMEOUT: Variable[float] = Variable(
    name="KERNELWRIGHT_LOCK_TIMEOUT",
    parse=_seconds,
    default=600.0,
    default_text="600",
    doc="Seconds to wait for another process that is building the same thing.",
)
THREADS: Variable[int | None] = Variable(
    name="KERNELWRIGHT_THREADS",
    parse=_count,
    default=None,
    default_text="all cores that the process may use",
    doc="Number of threads of the emulator, and of compilers that run at the same time.",
)
TARGET: Variable[str] = Variable(
    name="KERNELWRIGHT_TARGET",
    parse=_one_of("auto", "cuda", "cpu"),
    default="auto",
    default_text="auto",
    doc="What to build for without --target: cuda, cpu (the emulator), or auto (cuda if it works).",
)
EFFORT: Variable[str] = Variable(
    name="KERNELWRIGHT_EFFORT",
    parse=_one_of("none", "quick", "full"),
    default="quick",
    default_text="quick",
    doc="How hard to tune without --effort: none, quick or full.",
)
BUDGET: Variable[float | None] = Variable(
    name="KERNELWRIGHT_BUDGET",
    parse=_seconds,
    default=None,
    default_text="what the effort says",
    doc="Seconds of tuning, all kernels of a file together, without --budget.",
)
NVCC: Variable[Path | None] = Variable(
    name="KERNELWRIGHT_NVCC",
    parse=_path,
    default=None,
    default_text="searched for",
    doc="The CUDA compiler.",
)
CXX: Variable[Path | None] = Variable(
    name="KERNELWRIGHT_CXX",
    parse=_path,
    default=None,
    default_text="CXX, then g++, clang++, c++",
    doc="The C++ compiler of the emulator.",
)
CUDA_HOME: Variable[Path | None] = Variable(
    name="CUDA_HOME",
    parse=_path,
    default=None,
    default_text="/usr/local/cuda",
    doc="Install folder of CUDA, as PyTorch reads it.",
)
CUDA_PATH: Variable[Path | None] = Variable(
    name="CUDA_PATH",
    parse=_path,
    default=None,
    default_text="CUDA_HOME",
    doc="Another name for CUDA_HOME.",
)
CUDA_VISIBLE_DEVICES: Variable[tuple[str, ...]] = Variable(
    name="CUDA_VISIBLE_DEVICES",
    parse=_names,
    default=(),
    default_text="all",
    doc="The cards to use, as CUDA reads it; a suite hands each of them out by itself.",
)
CONNECTIONS: Variable[int | None] = Variable(
    name="CUDA_DEVICE_MAX_CONNECTIONS",
    parse=_count,
    default=None,
    default_text="CUDA's own",
    doc="Queues from a process to its card; 1 in the process of the clock, which needs no more.",
)
COPY_CONNECTIONS: Variable[int | None] = Variable(
    name="CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    parse=_count,
    default=None,
    default_text="1 in a judge's processes, else CUDA's own",
    doc="Queues for copies; each makes the start of a process longer, and no copy is timed.",
)
COMPILE_THREADS: Variable[int | None] = Variable(
    name="TORCHINDUCTOR_COMPILE_THREADS",
    parse=_count,
    default=None,
    default_text="PyTorch's own",
    doc="Compilers that torch.compile runs at the same time; a suite sets it to 1.",
)
OMP_THREADS: Variable[int | None] = Variable(
    name="OMP_NUM_THREADS",
    parse=_count,
    default=None,
    default_text="all cores",
    doc="Threads of PyTorch on the CPU; a suite sets it to 1, since its problems share the cores.",
)
BLAS_THREADS: Variable[int | None] = Variable(
    name="OPENBLAS_NUM_THREADS",
    parse=_count,
    default=None,
    default_text="all cores",
    doc="Threads of NumPy's BLAS; 1 in the process that is forked, which must have one thread.",
)
CUDA_CHECK: Variable[bool] = Variable(
    name="PYTORCH_NVML_BASED_CUDA_CHECK",
    parse=_present,
    default=False,
    default_text="ask the driver",
    doc="1: PyTorch looks for cards without starting CUDA, so a fork can; our commands set it.",
)
RAY_USAGE: Variable[str] = Variable(
    name="RAY_USAGE_STATS_ENABLED",
    parse=_one_of("0", "1"),
    default="0",
    default_text="0",
    doc="Whether a cluster that `suite --ray local` starts may report its use to Ray's makers.",
)
HOST_CXX: Variable[Path | None] = Variable(
    name="CXX",
    parse=_path,
    default=None,
    default_text="g++, clang++, c++",
    doc="The C++ compiler, as PyTorch reads it.",
)
NO_COLOR: Variable[bool] = Variable(
    name="NO_COLOR",
    parse=_present,
    default=False,
    default_text="colour on a terminal",
    doc="Set to anything: output has no colour (no-color.org).",
)

OURS: tuple[Variable[object], ...] = (
    CACHE_DIR,
    LOCK_TIMEOUT,
    THREADS,
    TARGET,
    EFFORT,
    BUDGET,
    NVCC,
    CXX,
)
STANDARD: tuple[Variable[object], ...] = (
    CUDA_HOME,
    CUDA_PATH,
    CUDA_VISIBLE_DEVICES,
    CONNECTIONS,
    COPY_CONNECTIONS,
    HOST_CXX,
    NO_COLOR,
    COMPILE_THREADS,
    OMP_THREADS,
    BLAS_THREADS,
    CUDA_CHECK,
    RAY_USAGE,
)


_KEEP_FOLDERS = ("torch._inductor.codecache",)
"""Modules that name folders below that of temporary files when they are imported."""


def usable_cores() -> int:
    """Cores this process may run on: KERNELWRIGHT_THREADS, or the affinity mask's count."""
    return THREADS.get() or len(os.sched_getaffinity(0))


def search_path() -> list[str]:
    """The folders of PATH, in order."""
    return os.environ.get("PATH", os.defpath).split(os.pathsep)


def become(environment: Mapping[str, str]) -> None:
    """Let this process have just this environment: a fork that is somebody's child process.

    What Python keeps of the environment that the forked process had is forgotten.
    """
    before = tempfile.gettempdir()
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # asked for again when somebody needs it
    for module in filter(None, map(sys.modules.get, _KEEP_FOLDERS)):
        for name, value in vars(module).items():
            if isinstance(value, str) and value.startswith(before + os.sep):
                setattr(module, name, tempfile.gettempdir() + value.removeprefix(before))


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """A copy of this process's environment with `overrides` on top, for a child process."""
    return {**os.environ, **overrides}


def put_first(name: str, word: str) -> None:
    """Put a word in front of those that a variable of this process's environment has."""
    os.environ[name] = " ".join([word, *os.environ.get(name, "").split()])


def forget(name: str) -> None:
    """Take a variable out of this process's environment, so that its children do not have it."""
    os.environ.pop(name, None)


@contextmanager
def present(overrides: Mapping[str, str]) -> Iterator[None]:
    """The environment of this process has `overrides` on top for the length of the block."""
    before = dict(os.environ)
    os.environ.update(overrides)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def render_settings_table() -> str:
    """Markdown table of all variables: name, default, meaning; ours first."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for variable in (*OURS, *STANDARD):
        lines.append(f"| `{variable.name}` | {variable.default_text} | {variable.doc} |")
    return "\n".join(lines) + "\n"
