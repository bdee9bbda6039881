"""Times of calls in this process: for modules in memory, which no other process has.

Whoever is timed here could tamper with the clock; files of strangers are timed by the room worker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from kernelwright.bench.measurement import Environment, Measurement, summarise
from kernelwright.bench.timing import Samples, Stopwatch, TimingPlan, interleave
from kernelwright.machine import Machine

Call = Callable[[int], object]
"""Takes its turn's number, and rotates its inputs by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    """A contestant of this process."""

    watch: Stopwatch
    call: Call

    def take(self, count: int) -> Samples:
        return self.watch.sample(self.call, count)


@torch.no_grad()
def time_calls(
    calls: Mapping[str, Call],
    *,
    candidate: str,
    device: torch.device,
    plan: TimingPlan,
    machine: Machine,
    environment: Environment,
    on_round: Callable[[int], None],
) -> Measurement:
    """The call named `candidate` against the others, in turns, on the CUDA device `device`.

    One that raises while it warms up is lost, with the error as the reason. There is no floor:
    nothing is known about the sizes of these arguments.
    """
    watch = Stopwatch(device)
    ready: dict[str, _Caller] = {}
    lost: dict[str, str] = {}
    for name, call in calls.items():
        try:
            watch.warm_up(call, plan.warm_up_seconds)
        except Exception as error:
            if name == candidate:
                raise
            lost[name] = f"{type(error).__name__}: {error}"
        else:
            ready[name] = _Caller(watch=watch, call=call)
    return summarise(
        interleave(ready, plan, on_round),
        candidate=candidate,
        lost=lost,
        floor=None,
        machine=machine,
        copy_bandwidth=None,
        environment=environment,
    )
