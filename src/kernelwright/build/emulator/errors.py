"""What stops a kernel on the emulator."""

from typing import TYPE_CHECKING, ClassVar

from kernelwright.errors import ExitCode, KernelwrightError

if TYPE_CHECKING:
    from kernelwright.build.emulator.findings import Finding


class EmulatorFault(KernelwrightError):  # noqa: N818 - it is the kernel's fault, not an error of ours
    """A kernel did something after which it could not go on, and its launch was abandoned."""

    exit_code: ClassVar[ExitCode] = ExitCode.WRONG
    next_step = "Correct the kernel at the line named; block and thread say for which indices."

    def __init__(self, message: str, *, findings: "tuple[Finding, ...]" = ()) -> None:
        location = findings[-1].location if findings else None
        super().__init__(message, location=location)
        self.findings = findings
        """What the session had found when the launch was abandoned; the last one stopped it."""
