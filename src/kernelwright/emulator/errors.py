"""What stops a kernel on the emulator."""

import ctypes
from typing import ClassVar

from kernelwright.emulator.findings import Finding, read_findings
from kernelwright.errors import ExitCode, KernelwrightError


class EmulatorFault(KernelwrightError):  # noqa: N818 - it is the kernel's fault, not an error of ours
    """A kernel made an error after which it could not go on, and its launch was ended."""

    exit_code: ClassVar[ExitCode] = ExitCode.WRONG
    next_step = "Correct the kernel at the line named; block and thread say for which indices."

    def __init__(self, message: str, *, findings: tuple[Finding, ...] = ()) -> None:
        location = findings[-1].location if findings else None
        super().__init__(message, location=location)
        self.findings = findings
        """What the session had found when the launch was abandoned; the last one stopped it."""


def fault_of(runtime: ctypes.CDLL) -> EmulatorFault | None:
    """The fault that the emulated device is in, until a session begins anew."""
    if runtime.kwemu_fault() == 0:
        return None
    findings = read_findings(runtime)
    if not findings:
        return EmulatorFault("a kernel stopped the device")
    last = findings[-1]
    where = f"block {last.block}, thread {last.thread}"
    return EmulatorFault(
        f"{last.kernel}: {last.kind.value} ({where}): {last.message}", findings=findings
    )
