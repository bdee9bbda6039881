"""A family's writer as one record: its kernels' text, and how their launches are called."""

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.codegen.arrange import Arranged, as_they_are
from kernelwright.codegen.kernel_text import KernelText
from kernelwright.ir.plan import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One row of the table of writers, under the name of the family."""

    emit: Callable[[Kernel], KernelText]
    """CUDA text of a kernel, and the device code that it needs."""
    arrange: Callable[[Kernel], Arranged] = as_they_are
    """Views of results and inputs that its launcher takes."""
