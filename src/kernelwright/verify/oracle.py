"""The reference in float64, on the very same values.

The module is copied and converted, and while it runs every low-precision tensor or dtype that an
operator meets (a `torch.zeros` inside `forward`, a `.float()`, a plain tensor attribute) is raised
to float64 as well, so modules that spell out float32 need no special case.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.verify.nesting import map_tensors, named_effects

_RAISED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRun:
    """What the float64 run gave, or why there is none."""

    tensors: Mapping[str, Tensor]
    """Results, arguments and state after the call, named as by `named_effects`; empty if the
    module does not run in float64."""
    note: str
    """Empty, or why there are no tensors, in one sentence."""


def upcast(tensor: Tensor) -> Tensor:
    """`tensor` in float64 (complex128), every value unchanged; integers as they are."""
    raised = _RAISED.get(tensor.dtype)
    return tensor if raised is None else tensor.to(raised)


class _InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises the tensors and dtypes that operators are given."""

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        def raise_value(value: object) -> object:
            match value:
                case torch.dtype():
                    return _RAISED.get(value, value)
                case list() | tuple():
                    return type(value)(raise_value(item) for item in value)
                case Tensor():
                    return upcast(value)
                case _:
                    return value

        raised = [raise_value(argument) for argument in args]
        keywords = {name: raise_value(value) for name, value in (kwargs or {}).items()}
        return func(*raised, **keywords)


@torch.no_grad()
def run_oracle(model: nn.Module, arguments: Sequence[object], *, seed: int) -> OracleRun:
    """`model` on `arguments` in float64; the given module and tensors are left alone.

    A module that cannot run in float64 gives a note instead of tensors.
    """
    try:
        raised_model = copy.deepcopy(model).double()
        raised_arguments = [map_tensors(value, _raised_copy) for value in arguments]
        torch.manual_seed(seed)
        with _InFloat64():  # type: ignore[no-untyped-call]
            result = raised_model(*raised_arguments)
        effects = named_effects(result, raised_arguments, raised_model.state_dict())
    except Exception as error:  # whatever a module raises in a precision it was not made for
        first_line = str(error).splitlines()[0] if str(error) else ""
        note = f"no float64 oracle: {type(error).__name__}: {first_line}"
        return OracleRun(tensors={}, note=note)
    return OracleRun(tensors=effects, note="")


def _raised_copy(tensor: Tensor) -> Tensor:
    raised = upcast(tensor)
    return raised.clone() if raised is tensor else raised
