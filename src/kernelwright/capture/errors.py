"""Why a module cannot become a Graph."""

from kernelwright.errors import UnsupportedError, UsageError


class CaptureError(UnsupportedError):
    """The module cannot become a graph: for example, it branches on values in a tensor."""

    next_step = (
        "Replace what depends on the values in a tensor, for example a branch by torch.where; "
        "`torch.export.export(model, inputs, strict=False)` shows the same error."
    )


class UnsupportedValueError(CaptureError):
    """`forward` takes, makes or returns something that a graph cannot represent."""

    next_step = (
        "Pass tensors, numbers, and lists, tuples or dicts of them; return the same, or "
        "namedtuples and dataclasses that PyTorch knows: torch.export.register_dataclass."
    )


class WrongArgumentsError(UsageError):
    """The arguments of a call, or what `get_inputs` returns, are not what `forward` takes."""

    next_step = "Return from `get_inputs` one value for each argument of `forward`, in its order."


class ScalarNeededError(Exception):
    """Internal: a call-time number is needed as a Python number; capture again with its value."""


class NumberAskedError(Exception):
    """Internal: the module does other things for a number than for what it is traced as."""


class UnlikeCallError(Exception):
    """Internal: the graph returns something else than a call of the module."""


class TraceError(Exception):
    """Internal: torch.export raised; its exception is the cause, the message for the user."""


class SymbolicWorkError(Exception):
    """Internal: conditions on open sizes have more terms than a trace may ask about."""


class UnsolvedSizeError(Exception):
    """Internal: these sizes of arguments are made of symbols that no argument has."""

    def __init__(self, places: frozenset[tuple[str, int]]) -> None:
        super().__init__()
        self.places = places
