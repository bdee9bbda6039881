"""A module's graph and plan, computed by the interpreters, against a call of the module itself."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import WrongValueError, run_graph
from kernelwright.ir.plan import Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.restoring import kept_random_state

_ALLOWED = {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float64: 1e-9}
"""RMSE of a result relative to its RMS: roundings of another order, through a whole network."""
_ALLOWED_ELSE = 1e-3
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a graph or plan, computed node by node, compares with a plain call of the module."""

    stage: str
    """"graph" or "plan"."""
    tensors: int
    """Results and changed buffers that were compared."""
    worst: float
    """Largest RMSE of one of them, relative to the RMS of what the call gives."""
    difference: str = ""
    """The first thing that is otherwise, a sentence; empty where nothing is."""

    @property
    def agrees(self) -> bool:
        """Whether structure, classes, shapes, dtypes and values are those of the call."""
        return not self.difference

    def __str__(self) -> str:
        if self.difference:
            return f"{self.stage}: {self.difference}"
        found = f"{self.tensors} tensors, structure and classes as in a call"
        return f"{self.stage}: {found}, worst RMSE {self.worst:.1e} of the RMS"


@torch.no_grad()
def check_plan(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], graph: Graph, plan: Plan
) -> tuple[Check, Check]:
    """The captured graph and the plan against `module(*args, **kwargs)`, buffers included.

    Each runs on copies, with the same random seed.
    """
    expected = _effects(module, args, kwargs, lambda copied, a, k: copied(*a, **k))
    return (
        _check("graph", expected, module, args, kwargs, lambda m, a, k: run_graph(graph, m, a, k)),
        _check("plan", expected, module, args, kwargs, lambda m, a, k: run_plan(plan, m, a, k)),
    )


_Run = Callable[[nn.Module, Sequence[Any], Mapping[str, Any]], Any]


def _effects(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], run: _Run
) -> tuple[Any, dict[str, Tensor]]:
    """Result and buffers after a call of a copy."""
    copied = copy.deepcopy(module)
    args, kwargs = tree_map_only(Tensor, torch.clone, (tuple(args), dict(kwargs)))
    with kept_random_state():
        torch.manual_seed(_SEED)
        result = run(copied, args, kwargs)
    return result, dict(copied.named_buffers())


def _check(
    stage: str,
    expected: tuple[Any, dict[str, Tensor]],
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    run: _Run,
) -> Check:
    try:
        found = _effects(module, args, kwargs, run)
    except (WrongValueError, ValueError) as error:
        return Check(stage=stage, tensors=0, worst=0.0, difference=str(error))
    errors: list[float] = []
    sentence = next(_differences(found, expected, "call", errors), "")
    return Check(
        stage=stage, tensors=len(errors), worst=max(errors, default=0.0), difference=sentence
    )


def _differences(found: Any, expected: Any, where: str, errors: list[float]) -> Iterator[str]:
    """What is otherwise in two results, outer things first; relative errors go into `errors`."""
    if type(found) is not type(expected) and not isinstance(expected, nn.Parameter):
        yield f"{where} is a {type(found).__name__}, in a call a {type(expected).__name__}"
    elif isinstance(expected, Tensor):
        yield from _of_tensors(found, expected, where, errors)
    elif isinstance(expected, dict):
        if list(found) != list(expected):
            yield f"{where} has the keys {list(found)}, in a call {list(expected)}"
            return
        for key, item in expected.items():
            yield from _differences(found[key], item, f"{where}[{key!r}]", errors)
    elif isinstance(expected, tuple | list):
        if len(found) != len(expected):
            yield f"{where} has {len(found)} items, in a call {len(expected)}"
            return
        for at, item in enumerate(expected):
            yield from _differences(found[at], item, f"{where}[{at}]", errors)
    elif hasattr(expected, "__dict__"):
        for name, item in vars(expected).items():
            yield from _differences(getattr(found, name), item, f"{where}.{name}", errors)
    elif found != expected:
        yield f"{where} is {found!r}, in a call {expected!r}"


def _of_tensors(found: Tensor, expected: Tensor, where: str, errors: list[float]) -> Iterator[str]:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        ours, theirs = (f"{tuple(it.shape)} of {it.dtype}" for it in (found, expected))
        yield f"{where} is {ours}, in a call {theirs}"
        return
    error = _relative_error(found, expected)
    errors.append(error)
    allowed = _ALLOWED.get(expected.dtype, _ALLOWED_ELSE)
    if not error <= allowed:
        yield f"{where} is {error:.1e} of its RMS away from a call's, allowed {allowed:.0e}"


def _relative_error(found: Tensor, expected: Tensor) -> float:
    """RMSE over RMS where both are finite; infinite where one of them alone is not."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours, theirs = found.to(wide), expected.to(wide)
    finite = theirs.isfinite()
    if not torch.equal(ours.isfinite(), finite) or not expected.numel():
        return 0.0 if not expected.numel() else float("inf")
    error, size = (it[finite].abs().square().mean().sqrt().item() for it in (ours - theirs, theirs))
    if not finite.any() or error == 0.0:
        return 0.0
    return float(error / size) if size else float("inf")
