"""CUDA on the CPU: the very same source, compiled by the host's compiler, and watched.

    with Session(order_seed=0, threads=2) as session: ...
    session.findings

The translator and the records need no PyTorch; `Session` imports it.
"""

from typing import TYPE_CHECKING

from kernelwright.emulator.errors import EmulatorFault
from kernelwright.emulator.findings import Finding, FindingKind

if TYPE_CHECKING:
    from kernelwright.emulator.session import Session

__all__ = ["EmulatorFault", "Finding", "FindingKind", "Session"]


def __getattr__(name: str) -> object:
    if name == "Session":
        from kernelwright.emulator.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
