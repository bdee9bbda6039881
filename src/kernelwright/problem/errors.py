"""What can be wrong with a problem file, one class for each mistake."""

from kernelwright.errors import ExitCode, KernelwrightError


class ProblemError(KernelwrightError):
    """The problem file cannot be used."""

    exit_code = ExitCode.USAGE
    next_step = (
        "A problem file defines `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`; "
        "examples/ has five."
    )


class ProblemFileError(ProblemError):
    """There is no such file, or it cannot be read as Python text."""

    next_step = "Pass the path of a Python file, encoded in UTF-8 or as its coding line says."


class ProblemSyntaxError(ProblemError):
    """The problem file is not valid Python."""

    next_step = "Correct the line; `python FILE` shows the same error."


class NoModelError(ProblemError):
    """The problem file defines no `Model`."""

    next_step = "Name the module to optimise `Model`, or pass a file that has one."


class ModelNotModuleError(ProblemError):
    """`Model` is not a class derived from nn.Module."""

    next_step = "Write `class Model(nn.Module):` with a `forward` method."


class NoForwardError(ProblemError):
    """`Model` has no `forward` method."""

    next_step = "Define `def forward(self, ...)` in `Model`: it is what gets optimised."


class NoInputsFunctionError(ProblemError):
    """The problem file defines no `get_inputs`."""

    next_step = "Define `def get_inputs():` that returns the list of `forward`'s arguments."


class NoInitInputsFunctionError(ProblemError):
    """The problem file defines no `get_init_inputs`."""

    next_step = (
        "Define `def get_init_inputs():` that returns the list of the constructor's arguments; "
        "`return []` where it takes none."
    )


class WrongReturnError(ProblemError):
    """`get_inputs` or `get_init_inputs` returns neither a list nor a tuple."""

    next_step = "Return a list of arguments, also when there is only one: `return [x]`."


class ProblemRaisedError(ProblemError):
    """The problem's own code raised an exception."""

    next_step = "Correct the problem file; `python -i FILE` lets you call the same functions."


class UnknownConstantError(ProblemError):
    """A size is asked for that the problem file does not have."""

    next_step = "Name one of the module-level integer constants of the file."


class WrongSizeError(ProblemError):
    """A size that is asked for is no positive integer."""

    next_step = "Give a whole number of at least 1."
