"""A family's writer as one record: its kernels' text, and how their launches are called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.codegen.arrange import Arranged, as_they_are
from kernelwright.codegen.kernel_text import KernelText
from kernelwright.ir.plan import Kernel


def _always(kernel: Kernel) -> None:
    return None


def _no_inputs(kernel: Kernel) -> frozenset[int]:
    return frozenset()


def _nothing(kernel: Kernel) -> tuple[str, ...]:
    return ()


def _none(kernel: Kernel) -> Mapping[int, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingSizes:
    """At which sizes of its first input a kernel may round."""

    captured: tuple[int, ...]
    elements: int | None = None
    """So many suffice, whatever the sizes are; None: only the captured ones."""

    def __str__(self) -> str:
        others = "" if self.elements is None else f" and from {self.elements} elements on"
        return f"{self.captured}{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One row of the table of writers, under the name of the family."""

    emit: Callable[[Kernel], KernelText]
    """CUDA text of a kernel, and the device code that it needs."""
    arrange: Callable[[Kernel], Arranged] = as_they_are
    """Views of results and inputs that its launcher takes."""
    only_at: Callable[[Kernel], RoundingSizes | None] = _always
    """Sizes at which alone, and while the user lets cuDNN's convolutions take TF32, the launcher
    may take its first variant. Two more words tell it; None: it does not ask."""
    early: Callable[[Kernel], frozenset[int]] = _no_inputs
    """Inputs that `launch_settled_<kernel>` reads while kernels before still run: none of those may
    write them. Empty: there is no such function."""
    arithmetic: Callable[[Kernel], tuple[str, ...]] = _nothing
    """Lines for the file's docstring about what its numbers are rounded to."""
    picks: Callable[[Kernel], Mapping[int, int]] = _none
    """Inputs whose integers pick, by their number, and out of how many at the captured sizes."""
