"""Every way a user can be told "no": one class per mistake, with where it is and what to do next.

A room adds its own mistakes by subclassing `KernelwrightError` beside the code that raises them:

    class NoModelError(KernelwrightError):
        "The problem file defines no class `Model`."

        exit_code = ExitCode.USAGE
        next_step = "Name the module to optimise `Model`, or pass a file that has one."

    raise NoModelError("model.py has no class `Model`", location="model.py:1")
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import ClassVar


class ExitCode(IntEnum):
    """What a `kernelwright` command tells the shell."""

    VERIFIED = 0
    """Verified; where `optimize` or `judge` measured its speed, also faster than every baseline."""
    WRONG = 1
    """The candidate is wrong, unsafe or dishonest; for `suite`, a problem is not verified."""
    NOT_FASTER = 2
    """Verified, but not faster than the best baseline."""
    DOES_NOT_BUILD = 3
    """The candidate, or a tool that it needs, does not build."""
    UNSUPPORTED = 4
    """Outside what kernelwright does, or what this machine can do."""
    USAGE = 64
    """The command, a file or a setting is not what it has to be (EX_USAGE of sysexits.h)."""


class KernelwrightError(Exception):
    """Something a user can act on; whatever is not one of these is a defect of kernelwright."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNSUPPORTED
    """What the process exits with when nobody handles the error."""
    next_step: str = (
        "Run `kernelwright doctor`: it says what works on this machine and what does not."
    )
    """What to do about it: a sentence for the whole class, or a better one for this instance."""

    def __init__(
        self, message: str, *, location: str | None = None, next_step: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        """What is wrong, in one sentence that names the thing."""
        self.location = location
        """Where in the user's own text: "model.py:12", or None where no file is to blame."""
        if next_step is not None:
            self.next_step = next_step

    def __str__(self) -> str:
        where = [f"  at {self.location}"] if self.location else []
        return "\n".join([self.message, *where, f"  next: {self.next_step}"])

    def to_json(self) -> dict[str, object]:
        """The error as plain JSON values; subclasses add the fields that they have."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "location": self.location,
            "next_step": self.next_step,
            "exit_code": int(self.exit_code),
        }


class UsageError(KernelwrightError):
    """The command line asks for something that does not exist or makes no sense."""

    exit_code = ExitCode.USAGE
    next_step = "Run the command with --help; it lists what can be asked for."


class OutputError(UsageError):
    """A result cannot be written where it was asked for."""

    next_step = "Name a file in a folder that you may write to."


class SettingError(UsageError):
    """An environment variable holds a value that cannot be read."""

    next_step = "Correct the variable or unset it; docs/settings.md lists all of them."


class UnsupportedError(KernelwrightError):
    """The module uses something that kernelwright does not do."""

    exit_code = ExitCode.UNSUPPORTED
    next_step = "Leave the operator to PyTorch (without --strict), or rewrite it in the module."


class NoGpuError(KernelwrightError):
    """The command needs a CUDA device and this machine has none that works."""

    exit_code = ExitCode.UNSUPPORTED
    next_step = (
        "Use --target cpu to build and verify on the emulator, or run on a machine with a GPU; "
        "`kernelwright doctor` says what is missing."
    )


class NoCompilerError(KernelwrightError):
    """A compiler that the target needs was not found."""

    exit_code = ExitCode.DOES_NOT_BUILD
    next_step = (
        "Install it, or name it: KERNELWRIGHT_NVCC for the CUDA compiler, KERNELWRIGHT_CXX for "
        "the C++ compiler; `kernelwright doctor` lists what was found."
    )


class CompileError(KernelwrightError):
    """A compiler refused a source text."""

    exit_code = ExitCode.DOES_NOT_BUILD
    next_step = "Correct the source at the place named; the log has all that the compiler said."

    def __init__(
        self,
        message: str,
        *,
        location: str | None = None,
        next_step: str | None = None,
        log_path: Path | None = None,
    ) -> None:
        super().__init__(message, location=location, next_step=next_step)
        self.log_path = log_path
        """The whole output of the compiler, or None where it could not be kept."""

    def __str__(self) -> str:
        log = f"\n  log: {self.log_path}" if self.log_path else ""
        return super().__str__() + log

    def to_json(self) -> dict[str, object]:
        """The error as plain JSON values, `log_path` among them."""
        log_path = str(self.log_path) if self.log_path else None
        return {**super().to_json(), "log_path": log_path}


class LockTimeoutError(KernelwrightError):
    """Another process has been building the same thing for longer than the wait allowed."""

    exit_code = ExitCode.DOES_NOT_BUILD
    next_step = (
        "Wait for the process that is named or end it, then try again; "
        "KERNELWRIGHT_LOCK_TIMEOUT sets how many seconds to wait."
    )


class CacheFolderError(KernelwrightError):
    """The cache folder cannot be created or written."""

    exit_code = ExitCode.DOES_NOT_BUILD
    next_step = "Make the folder writable, free some space, or set KERNELWRIGHT_CACHE_DIR."


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes `path`: what the system refuses is an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error}", location=str(path)) from error


def all_errors(
    root: type[KernelwrightError] = KernelwrightError,
) -> Iterator[type[KernelwrightError]]:
    """Every subclass of `root` in the rooms imported so far, parents before children."""
    for error in root.__subclasses__():
        yield error
        yield from all_errors(error)


def render_errors_table() -> str:
    """Markdown table of every error of the rooms imported so far: name, meaning, exit code, advice.

    Docs are generated from it: import all the rooms first.
    """
    ours = {error for error in all_errors() if error.__module__.startswith("kernelwright.")}
    rows = sorted(ours, key=lambda error: error.__name__)
    lines = ["| error | means | exit code | what to do |", "| --- | --- | --- | --- |"]
    for error in rows:
        meaning = (error.__doc__ or "").strip().splitlines()[0]
        lines.append(
            f"| `{error.__name__}` | {meaning} | {int(error.exit_code)} | {error.next_step} |"
        )
    return "\n".join(lines) + "\n"
