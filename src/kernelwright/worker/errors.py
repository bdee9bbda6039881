"""What keeps a judgement from being made at all."""

from kernelwright.errors import ExitCode, KernelwrightError


class ReferenceFailedError(KernelwrightError):
    """The problem's own module cannot be run, so there is nothing to compare with."""

    exit_code = ExitCode.USAGE
    next_step = "Run the problem file by itself: its Model has to run on what get_inputs returns."


class OracleMemoryError(KernelwrightError):
    """Other processes have the memory that the float64 run needs, so errors cannot be measured."""

    exit_code = ExitCode.USAGE
    next_step = "Judge it again when no other process uses the card's memory."


class ChildStartError(KernelwrightError):
    """A child process could not be made ready: PyTorch, the GPU or the emulator does not work."""

    exit_code = ExitCode.DOES_NOT_BUILD


class CandidateFileError(KernelwrightError):
    """There is no candidate file at that path."""

    exit_code = ExitCode.USAGE
    next_step = "Pass the path of a Python file that defines `ModelNew` (or `Model`)."
