"""When a child that does not answer hangs: it has had many times what the reference took.

A call that compiles (torch.compile, Triton, a compiler that the file starts) takes as long as that
takes: what counts are the seconds since somebody compiled for it. Several processes run a file, and
one builds its extension while the others wait at PyTorch's lock: that is compiling, too.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.worker.sandbox_warden import family

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


def patience_for(
    *, least: float, call: float, beside: float, compiles: Callable[[], bool], calls: int = 1
) -> Patience:
    """That for a candidate whose reference took `call` seconds for its call, of `beside` in all.

    What the reference needs beside its call (modules, inputs, their way to the card) the candidate
    needs as well, twice where it runs twice. `calls` are those that it makes before it answers.
    """
    seconds = max(least, _TIMES * call * calls) + 2 * beside
    reason = f"the reference's call takes {call:.2g} s"
    return Patience(seconds=seconds, reason=reason, compiles=compiles)


def compiles(pid: int, folder: Path) -> bool:
    """Whether a child with this number, or what it has started, compiles.

    `folder` is that of exchange, where it says so itself; nobody has to believe that for longer
    than a run may take.
    """
    return (folder / f"{_SIGN}{pid}").exists() or any(_name(it) in _COMPILERS for it in family(pid))


def _name(pid: int) -> str:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def tell_when_compiling(folder: Path, text: str) -> None:
    """Make the sign whenever torch.compile works from now on, for a file whose `text` names it."""
    if "torch.compile" not in text and "_dynamo" not in text:
        return
    # Here and not above: it takes a second of a core, in every child.
    from torch._dynamo.callback import callback_handler as handler

    sign = folder / f"{_SIGN}{os.getpid()}"

    def begin(*_: Any) -> None:
        sign.touch()

    def end(*_: Any) -> None:
        sign.unlink(missing_ok=True)

    handler.register_start_callback(begin)
    handler.register_end_callback(end)
