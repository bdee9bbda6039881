"""One module in one way, in a process: ours, eager or torch.compile, or only to optimize it.

Whoever compiles leaves the card to others: the time until a module can be called is taken by the
wall clock, less what was waited for the card, beside others that compile.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from side_by_side import Keep, Task
from stopwatch import Card, device_ms, kernel_ms, peak_bytes, wall_ms
from torch import nn

from kernelwright import api, module, module_text
from kernelwright.module import OptimizedModule
from kernelwright.pipeline import OptimizeOptions
from kernelwright.tune.effort import effort
from kernelwright.tune.parts import CallTimer, LaunchTimer, decided
from module_parts.cases import CASES, Made, cast


def measure(task: Task, keep: Keep) -> None:
    """What the task's way makes of its module."""
    facts = task.facts
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    card = Card(torch.device(facts["device"]))
    if card.device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.zeros(1, device=card.device)  # The context takes seconds.
    made = cast(CASES[facts["module"]](), card.device, getattr(torch, facts["dtype"]))
    with torch.no_grad():
        WAYS[facts["way"]](card, made, facts, keep)


def _ours(card: Card, made: Made, facts: dict[str, Any], keep: Keep) -> None:
    fast, args, kwargs = _optimized(card, made, facts, keep), *made[1:]
    found = fast.kernelwright
    _costs(card, lambda: fast(*args, **kwargs), keep)
    if found.set_aside and found.kernels:
        fast.kernelwright = replace(found, set_aside="")
    with card.alone():
        keep(kernels_ms=kernel_ms(card, lambda: fast(*args, **kwargs)))


def _only_optimized(card: Card, made: Made, facts: dict[str, Any], keep: Keep) -> None:
    _optimized(card, made, facts, keep)


def _optimized(card: Card, made: Made, facts: dict[str, Any], keep: Keep) -> OptimizedModule:
    """The module with kernels; how long that took, and what it says of itself, are kept."""
    model, args, kwargs = made
    began = time.monotonic()
    stages: dict[str, float] = {}
    rounds: list[list[list[float]]] = []
    """Milliseconds on the device and by the wall clock, ours and eager, of each that was timed."""

    def on_event(event: Any) -> None:
        stages.setdefault(event.stage, round(time.monotonic() - began - card.waited, 2))

    def clock(fast: OptimizedModule, values: Any, keywords: Any) -> Any:
        stages["time"] = round(time.monotonic() - began - card.waited, 2)
        with card.alone():
            found = api._measure_in_memory(fast, values, keywords, api._AGAINST_ITSELF, on_event)
        if found.candidate is not None:
            series = (found.candidate, *found.baselines)
            rounds.append([[round(it.device_ms, 4), round(it.host_ms, 4)] for it in series])
        keep(rounds=rounds, stages=stages, kernels=len(fast.kernelwright.kernels))
        return found

    def parts(fast: OptimizedModule) -> Any:
        return lambda given, captured: _parts(card, fast, given, captured, keep)

    options = OptimizeOptions(effort=effort(facts["effort"]))
    with _in_turns(card, stages, began):
        fast = api.optimize_in_memory(model, args, kwargs, options, on_event, clock, parts)
    found = fast.kernelwright
    keep(
        optimize_seconds=round(time.monotonic() - began - card.waited, 2),
        waited=round(card.waited, 2),
        stages=stages,
        kernels=len(found.kernels),
        left=list(found.left_to_pytorch),
        checks=list(found.checks),
        times=found.times,
        set_aside=found.set_aside,
        kept=found.kept,
        verified=bool(found.checks) and not found.set_aside.startswith("wrong"),
    )
    return fast


def _parts(card: Card, fast: OptimizedModule, given: Any, captured: Any, keep: Keep) -> Any:
    """What `optimize` measures of a plan's parts; equal ones are kept once, in microseconds."""
    with card.alone():
        ours = LaunchTimer(module.library_of(fast), card.device)
        theirs = CallTimer(captured, card.device)
        measured = decided(given, ours, theirs)
        rows = {
            (it.name, it.kernel.name, *map(str, it.kernel.inputs)): [
                round(1e6 * (seconds or 0.0), 2) for seconds in (ours(it), theirs(it))
            ]
            for it in given
        }
    keep(parts=[[*row, *times] for row, times in rows.items()])
    return measured


@contextmanager
def _in_turns(card: Card, stages: dict[str, float], began: float) -> Iterator[None]:
    """Inside, what optimizing runs is alone on the card, and what it builds leaves it to others."""
    together = module_text.compile_together

    def build(*arguments: Any) -> Any:
        stages["build"] = round(time.monotonic() - began - card.waited, 2)
        with card.given_back():
            library = together(*arguments)
        stages["built"] = round(time.monotonic() - began - card.waited, 2)
        return library

    def alone(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            with card.alone():
                return function(*args)

        return called

    with (
        mock.patch.object(module_text, "compile_together", build),
        mock.patch.object(module, "_runs", alone(module._runs)),
        mock.patch.object(module, "_checked", alone(module._checked)),
    ):
        yield


def _eager(card: Card, made: Made, facts: dict[str, Any], keep: Keep) -> None:
    model, args, kwargs = made
    _costs(card, lambda: model(*args, **kwargs), keep)
    with card.alone():
        keep(kernels_ms=kernel_ms(card, lambda: model(*args, **kwargs)))


def _compiled(card: Card, made: Made, facts: dict[str, Any], keep: Keep) -> None:
    model, args, kwargs = made
    began = time.monotonic()
    mode = _MODES[facts["way"]]
    call: nn.Module = torch.compile(model, mode=mode)  # type: ignore[assignment]
    if card.device.type == "cuda":
        _lock_compiled_calls(card)
    if mode is None:
        call(*args, **kwargs)
    else:  # What it compiles it also times, so that it has the card for as long.
        with card.alone():
            call(*args, **kwargs)
    keep(optimize_seconds=round(time.monotonic() - began - card.waited, 2))
    _costs(card, lambda: call(*args, **kwargs), keep)
    with card.alone():
        keep(kernels_ms=kernel_ms(card, lambda: call(*args, **kwargs)))


_MODES = {"torch.compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def _lock_compiled_calls(card: Card) -> None:
    """A compiled graph's first call, which follows its compilation, disturbs nobody's timing."""
    from torch._inductor.output_code import CompiledFxGraph

    run = CompiledFxGraph.__call__

    def call(self: Any, inputs: Any) -> Any:
        if card.is_mine:
            return run(self, inputs)
        with card.alone():
            return run(self, inputs)

    CompiledFxGraph.__call__ = call  # type: ignore[method-assign]


def _costs(card: Card, call: Callable[[], object], keep: Keep) -> None:
    with card.alone():
        keep(device_ms=round(device_ms(card, call), 4))
        keep(wall_ms=round(wall_ms(card, call), 4))
        keep(peak_bytes=peak_bytes(card, call))


WAYS: dict[str, Callable[[Card, Made, dict[str, Any], Keep], None]] = {
    "ours": _ours,
    "eager": _eager,
    "torch.compile": _compiled,
    "max-autotune": _compiled,
    "optimize": _only_optimized,
}
