"""What one call of a problem costs, found without computing anything."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from kernelwright.problem.execution import (
    Instance,
    Shapes,
    instantiate,
    instantiate_fake,
    user_code,
)
from kernelwright.problem.record import Problem

_COMPILER = "torch._dynamo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Size of one call of `forward`."""

    bytes: int
    """Inputs, parameters, buffers and outputs together."""
    flops: int
    """Matrix products and convolutions (two for each multiply-add), and one for each element
    that any other operator writes: an estimate of the work, for comparing sizes."""
    largest: int = field(default=0, compare=False)
    """Bytes of the largest result of one operator."""


def measure(problem: Problem) -> Cost:
    """The cost of one call, from shapes alone: no data is allocated.

    Raises what `instantiate` raises, or ProblemRaisedError when `forward` fails.
    """
    try:
        return _on_meta_tensors(problem)
    except Exception:  # it needs a number, or names a device
        return _on_fake_tensors(problem)


def _on_meta_tensors(problem: Problem) -> Cost:
    """By tensors that fake ones need a second of imports more for, and that can do less."""
    counts = _Counter()
    with _without_compiler(), _NoDevice(), torch.device("meta"):
        instance = instantiate(problem)
        with counts, torch.no_grad():
            outputs = instance.module(*instance.inputs)
    return _cost(instance, outputs, counts, counts.flops)


def _on_fake_tensors(problem: Problem) -> Cost:
    mode, counts = Shapes(), _Counter()
    instance = instantiate_fake(problem, mode)
    flops = FlopCounterMode(display=False)
    with user_code(problem, "`forward`"), mode, flops, counts, torch.no_grad():
        outputs = instance.module(*instance.inputs)
    return _cost(instance, outputs, counts, flops.get_total_flops())


def _cost(instance: Instance, outputs: object, counts: "_Counter", flops: int) -> Cost:
    state = instance.module.state_dict().values()
    tensors = {
        id(leaf): leaf.numel() * leaf.element_size()
        for leaf in tree_leaves([instance.inputs, list(state), outputs])
        if isinstance(leaf, torch.Tensor)
    }
    return Cost(bytes=sum(tensors.values()), flops=flops + counts.elements, largest=counts.largest)


@contextmanager
def _without_compiler() -> Iterator[None]:
    """What computes shapes in Python asks torch's compiler to leave it alone, and imports it for
    that: one to five seconds. Here that is a stand-in, which leaves no trace; where the compiler is
    there already, or another thread may ask for it, it is the real one.
    """
    if _COMPILER in sys.modules or threading.active_count() > 1:
        yield
        return
    asked: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        asked.append(function)
        return function

    stand_in = ModuleType(_COMPILER)
    vars(stand_in)["disable"] = disable
    sys.modules[_COMPILER] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]
        if vars(torch).get("_dynamo") is stand_in:
            delattr(torch, "_dynamo")
        for function in asked:
            # What is remembered of the answer, in every release that has this question.
            vars(function).pop("__dynamo_disable", None)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that PyTorch's compiler is not imported for, a second of a core."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _NoDevice(_Watch):  # type: ignore[no-untyped-call]
    """Refuses tensors that have data, before they are made."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        device = (kwargs or {}).get("device")
        if device is not None and torch.device(device).type != "meta":
            raise LookupError(f"{func} asks for {device}")
        return func(*args, **(kwargs or {}))


class _Counter(_Watch):  # type: ignore[no-untyped-call]
    """Counts what operators do."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        """All that they returned."""
        self.flops = 0
        """Floating-point operations of operators that are composed of no others."""
        self.largest = 0
        """Bytes of the largest result."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if formula := flop_registry.get(func._overloadpacket):
            self.flops += formula(*args, **kwargs, out_val=result)
        if not func.is_view:
            leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.elements += sum(leaf.numel() for leaf in leaves)
            sizes = [leaf.numel() * leaf.element_size() for leaf in leaves]
            self.largest = max([self.largest, *sizes])
        return result
