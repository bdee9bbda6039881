"""What one call of a problem costs, found without computing anything."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.problem.execution import Shapes, instantiate_fake, user_code
from kernelwright.problem.record import Problem


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
    mode = Shapes()
    instance = instantiate_fake(problem, mode)
    flops = FlopCounterMode(display=False)
    writes = _ElementCounter()
    with user_code(problem, "`forward`"), mode, flops, writes, torch.no_grad():
        outputs = instance.module(*instance.inputs)
    state = instance.module.state_dict().values()
    tensors = {
        id(leaf): leaf.numel() * leaf.element_size()
        for leaf in tree_leaves([instance.inputs, list(state), outputs])
        if isinstance(leaf, torch.Tensor)
    }
    return Cost(
        bytes=sum(tensors.values()),
        flops=flops.get_total_flops() + writes.elements,
        largest=writes.largest,
    )


class _ElementCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements of everything that operators return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.elements += sum(leaf.numel() for leaf in leaves)
            sizes = [leaf.numel() * leaf.element_size() for leaf in leaves]
            self.largest = max([self.largest, *sizes])
        return result
