"""Wrong answers that a problem should tell from right ones; where it cannot, the verdict says so.

Each is the reference with one thing taken away. They go through the same comparison as a candidate,
on the same inputs, until some input has refused each of them.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from kernelwright.verify.nesting import map_tensors, named_results, named_tensors


class MutantKind(Enum):
    """What is taken away."""

    ZEROS = "zeros"
    CONSTANT = "a constant"
    WEIGHTS = "a module with other weights"
    INPUT = "one that ignores an input"
    FLOAT16 = "one with inputs and weights rounded to float16"
    BFLOAT16 = "one with inputs and weights rounded to bfloat16"
    TF32 = "one with inputs and weights rounded to TF32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One wrong answer."""

    kind: MutantKind
    place: str = ""
    """Which input: "input[1]"."""

    def __str__(self) -> str:
        if self.kind is MutantKind.INPUT:
            return f"one that ignores {self.place}"
        return str(self.kind.value)


Outputs = Mapping[str, Tensor]
"""Results by name."""


def mutants_of(module: nn.Module, arguments: Sequence[object]) -> tuple[Mutant, ...]:
    """The mutants that differ from the reference at all."""
    inputs = dict(named_tensors(list(arguments), "input"))
    state = [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]
    kinds = [MutantKind.ZEROS, MutantKind.CONSTANT]
    if state:
        kinds.append(MutantKind.WEIGHTS)
    if any(tensor.dtype == torch.float32 for tensor in (*inputs.values(), *state)):
        kinds += list(_ROUNDINGS)
    ignoring = [Mutant(kind=MutantKind.INPUT, place=name) for name in inputs]
    return (*(Mutant(kind=kind) for kind in kinds), *ignoring)


@torch.no_grad()
def run_mutant(
    mutant: Mutant,
    module: nn.Module,
    arguments: Sequence[object],
    others: Sequence[object],
    expected: Outputs,
    reload: Callable[[nn.Module], None],
) -> Outputs:
    """What `mutant` gives in place of `expected`; empty where it is no other than the reference.

    `others` are arguments of the same form with other values; `reload` gives a module other
    weights. Module and arguments are left alone.
    """
    match mutant.kind:
        case MutantKind.ZEROS:
            return {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
        case MutantKind.CONSTANT:
            return {name: torch.full_like(t, _typical(t)) for name, t in expected.items()}
        case MutantKind.WEIGHTS:
            changed = copy.deepcopy(module)
            reload(changed)
            return _call(changed, arguments)
        case MutantKind.INPUT:
            swapped = _with_other(arguments, others, mutant.place)
            return _call(copy.deepcopy(module), swapped) if swapped is not None else {}
        case rounded:
            return _rounded(module, arguments, _ROUNDINGS[rounded])


def _call(module: nn.Module, arguments: Sequence[object]) -> Outputs:
    fresh = [map_tensors(value, lambda tensor: tensor.clone()) for value in arguments]
    return dict(named_results(module(*fresh), "output"))


def _typical(tensor: Tensor) -> float:
    if tensor.dtype == torch.bool or tensor.is_complex() or tensor.numel() == 0:
        return 0.0
    finite = tensor[tensor.isfinite()].double()
    mean = float(finite.mean().item()) if finite.numel() else 0.0
    return mean if tensor.is_floating_point() else round(mean)


def _with_other(
    arguments: Sequence[object], others: Sequence[object], place: str
) -> list[object] | None:
    """`arguments` with the tensor at `place` from `others`; None where the two are equal."""
    mine = list(named_tensors(list(arguments), "input"))
    theirs = dict(named_tensors(list(others), "input"))
    if place not in theirs or torch.equal(dict(mine)[place], theirs[place]):
        return None
    names: Iterator[str] = iter([name for name, _ in mine])

    def swap(tensor: Tensor) -> Tensor:
        name = next(names)
        return theirs[name] if name == place else tensor

    return [map_tensors(value, swap) for value in arguments]


def _rounded(
    module: nn.Module, arguments: Sequence[object], rounding: Callable[[Tensor], Tensor]
) -> Outputs:
    def cut(tensor: Tensor) -> Tensor:
        return rounding(tensor) if tensor.dtype == torch.float32 else tensor

    changed = copy.deepcopy(module)
    for tensor in (*changed.parameters(), *changed.buffers()):
        tensor.copy_(cut(tensor))
    return _call(changed, [map_tensors(value, cut) for value in arguments])


_TF32_DROPPED = 13
"""Bits of a float32's mantissa that TF32 does not have."""


def _to_tf32(tensor: Tensor) -> Tensor:
    half, mask = 1 << (_TF32_DROPPED - 1), -(1 << _TF32_DROPPED)
    bits = tensor.contiguous().view(torch.int32)
    rounded = ((bits + half) & mask).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded, tensor)


_ROUNDINGS: dict[MutantKind, Callable[[Tensor], Tensor]] = {
    MutantKind.FLOAT16: lambda tensor: tensor.to(torch.float16).to(torch.float32),
    MutantKind.BFLOAT16: lambda tensor: tensor.to(torch.bfloat16).to(torch.float32),
    MutantKind.TF32: _to_tf32,
}
