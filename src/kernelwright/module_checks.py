"""Checks of a module in memory: what its kernels give and change, against the model's own and
float64."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.restoring import kept_random_state
from kernelwright.verify.compare import compare
from kernelwright.verify.nesting import named_effects
from kernelwright.verify.noise import Ties
from kernelwright.verify.oracle import OracleRun, Rounded, run_oracle, run_rounded
from kernelwright.verify.tolerance import NO_LESS_ACCURATE, ErrorMetrics, Oracle, rule


class _Call(nn.Module):
    """A call with keywords as one with positions only."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *values: Any) -> Any:
        split = len(values) - len(self.names)
        return self.model(*values[:split], **dict(zip(self.names, values[split:], strict=True)))


_SEED = 0


class _OtherStructureError(Exception):
    """Names of the tensors that only one of two results has."""


def compared(
    module: nn.Module,
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    flops: int,
) -> tuple[tuple[str, ...], str]:
    """A sentence for each tensor that is compared, and why the kernels are wrong; "" if they are
    not."""
    names, values = tuple(kwargs), [*args, *kwargs.values()]
    try:
        with kept_random_state():
            metrics = _comparisons(_Call(module, names), _Call(model, names), values, flops)
            rulings = [rule(it, NO_LESS_ACCURATE) for it in metrics]
    except _OtherStructureError as error:
        return (), f"wrong results: one of the two has no {error}"
    wrong = next((f"wrong results: {it.reason}" for it in rulings if not it.accepted), "")
    return tuple(it.reason for it in rulings), wrong


def _comparisons(
    ours: nn.Module, theirs: nn.Module, values: list[Any], flops: int
) -> Iterator[ErrorMetrics]:
    """Every tensor that a call gives or changes, against the model's own and float64."""
    found, expected = _effects(ours, values), _effects(theirs, values)
    oracle = run_oracle(theirs, values, seed=_SEED)
    outputs = sum(value.numel() for name, value in expected.items() if name.startswith("output"))
    terms = max(1.0, flops / 2 / max(1, outputs))

    @cache
    def rounded() -> Mapping[str, Tensor]:
        run = run_rounded(theirs, values, seed=_SEED, draw=0, ties=Ties.KEPT, what=Rounded.ALL)
        return run.tensors

    def measure(name: str, value: Tensor, oracle: OracleRun) -> ErrorMetrics:
        reference = expected[name]
        metrics = compare(name, value, reference, oracle.tensors.get(name), oracle.note)
        return replace(metrics, terms=terms)

    if found.keys() != expected.keys():
        raise _OtherStructureError(", ".join(sorted(found.keys() ^ expected.keys())))
    for name, value in found.items():
        metrics = measure(name, value, oracle)
        refused = not rule(metrics, NO_LESS_ACCURATE).accepted
        if refused and metrics.oracle is Oracle.FLOAT64 and name in rounded():
            loss = measure(name, rounded()[name], oracle)
            metrics = replace(
                metrics, loss_rmse=loss.candidate_rmse, loss_worst=loss.candidate_worst
            )
        yield metrics


@torch.no_grad()
def _effects(module: nn.Module, values: list[Any]) -> dict[str, Tensor]:
    """What a call of a copy gives, on copies of the arguments."""
    module, values = copy.deepcopy((module, values))
    torch.manual_seed(_SEED)
    result = module(*values)
    return named_effects(result, values, module.state_dict())
