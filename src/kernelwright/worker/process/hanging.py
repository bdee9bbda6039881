"""When a child that does not answer hangs: it has had many times what the reference took.

A call that compiles (torch.compile, Triton, a compiler that the file starts) takes as long as that
takes: what counts are the seconds since somebody compiled for it. Several processes run a file, and
one builds its extension while the others wait at PyTorch's lock: that is compiling, too.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.worker.sandbox.warden import family

_TIMES = 100
"""Times of the reference's call that a candidate may take."""
_COMPILERS = frozenset(
    {
        *("nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink"),
        *("cc1plus", "cc1", "as", "ld", "collect2", "lld", "ninja"),
        *("g++", "gcc", "c++", "cc", "clang", "clang++"),
    }
)
"""What the kernel calls processes that compile."""
_SIGN = "compiling-"
"""With a child's number: file of the folder of exchange, there while PyTorch compiles in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a child may neither answer nor compile."""

    seconds: float
    reason: str
    """What it is measured by, in words."""
    compiles: Callable[[], bool]
    """Whether it compiles now."""
    compiling: float = 0.0
    """Seconds at most for which it may compile beside the time that its answer may take."""


class Waiting:
    """What is left of the time for one answer."""

    def __init__(self, *, deadline: float, patience: Patience | None) -> None:
        """`deadline` on the monotonic clock, if it compiles nothing."""
        self._deadline = deadline
        self._patience = patience
        self._still = self._looked = time.monotonic()
        self._compiled = 0.0

    def next_look(self) -> float:
        """Seconds to wait for the answer before it is looked at what the child does."""
        left = max(0.0, self._end() - time.monotonic())
        return left if self._patience is None else min(_LOOK_AGAIN, left)

    def goes_on(self) -> bool:
        """Whether there is time left, after a look at what the child does."""
        if self._patience is not None:
            before, self._looked = self._looked, time.monotonic()
            if self._patience.compiles():
                self._still = self._looked
                left = self._patience.compiling - self._compiled
                passed = min(left, self._looked - before)
                self._compiled += passed
                self._deadline += passed
        return time.monotonic() < self._end()

    def in_words(self, timeout: float) -> str:
        """How long it was waited, and why no longer, once there is no time left."""
        if self._patience is not None and self._still + self._patience.seconds < self._deadline:
            return f"{self._patience.seconds:.3g} s; {self._patience.reason}"
        compiled = f" and {self._compiled:.3g} s of compiling" if self._compiled else ""
        return f"{timeout:g} s{compiled}"

    def _end(self) -> float:
        if self._patience is None:
            return self._deadline
        return min(self._deadline, self._still + self._patience.seconds)


_LOOK_AGAIN = 0.25
"""Seconds between two looks at whether a child that does not answer compiles."""


def patience_for(
    *,
    least: float,
    call: float,
    beside: float,
    compiles: Callable[[], bool],
    calls: int = 1,
    compiling: float = 0.0,
) -> Patience:
    """That for a candidate whose reference took `call` seconds for its call, of `beside` in all.

    What the reference needs beside its call (modules, inputs, their way to the card) the candidate
    needs as well, twice where it runs twice. `calls` are those that it makes before it answers;
    `compiling` are the seconds that it may take to build in its first call what others build when
    they are imported.
    """
    seconds = max(least, _TIMES * call * calls) + 2 * beside
    reason = f"the reference's call takes {call:.2g} s"
    return Patience(seconds=seconds, reason=reason, compiles=compiles, compiling=compiling)


def compiles(pid: int, folder: Path) -> bool:
    """Whether a child with this number, or what it has started, compiles.

    `folder` is that of exchange, where it says so itself; nobody has to believe that for longer
    than a run and a build may take.
    """
    return (folder / f"{_SIGN}{pid}").exists() or any(_name(it) in _COMPILERS for it in family(pid))


def _name(pid: int) -> str:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def tell_when_compiling(folder: Path) -> None:
    """Make the sign whenever torch.compile works in this process from now on."""
    sign = folder / f"{_SIGN}{os.getpid()}"

    def begin(*_: Any) -> None:
        sign.touch()

    def end(*_: Any) -> None:
        sign.unlink(missing_ok=True)

    def watch(callbacks: Any) -> None:
        callbacks.callback_handler.register_start_callback(begin)
        callbacks.callback_handler.register_end_callback(end)

    if _CALLBACKS in sys.modules:
        watch(sys.modules[_CALLBACKS])
    else:
        sys.meta_path.insert(0, _OnceImported(_CALLBACKS, watch))


_CALLBACKS = "torch._dynamo.callback"
"""Part of PyTorch's compiler, whose import takes seconds of a core: it is left to who compiles."""


class _OnceImported(MetaPathFinder):
    """Lets `then` have a module when it is imported for the first time."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What others find, and `then` to be called once it has run."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loading(spec.loader, self._then)
        return spec


class _Loading(Loader):
    """A loader, and what is to be called with the module once it has run."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which has its own loader from then on."""
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._then(module)
