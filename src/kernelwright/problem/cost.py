"""What one call of a problem costs, found without computing anything."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelwright.problem.execution import (
    Instance,
    Shapes,
    instantiate,
    instantiate_fake,
    user_code,
)
from kernelwright.problem.modes import Mode, ProductCounter
from kernelwright.problem.record import Problem
from kernelwright.problem.stand_ins import stand_ins


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
    counts, no_device = _Counter(), _NoDevice()
    with stand_ins(), no_device, torch.device("meta"):
        instance = instantiate(problem)
        with counts, torch.no_grad():
            outputs = instance.module(*instance.inputs)
    return _cost(instance, outputs, counts, counts.flops)


def _on_fake_tensors(problem: Problem) -> Cost:
    mode, counts = Shapes(), _Counter()
    instance = instantiate_fake(problem, mode)
    flops = ProductCounter(display=False)
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


class _NoDevice(Mode):  # type: ignore[no-untyped-call]
    """Refuses tensors that have data, before they are made."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        device = (kwargs or {}).get("device")
        if device is not None and torch.device(device).type != "meta":
            raise LookupError(f"{func} asks for {device}")
        return func(*args, **(kwargs or {}))


class _Counter(Mode):  # type: ignore[no-untyped-call]
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
