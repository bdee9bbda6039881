"""Two or more functions timed call by call, in random order, the L2 flushed before every call."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from kernelwright.bench.statistics import Interval, ratio_of_medians

_FLUSHED = 512 << 20
"""Bytes written before every call: several times the L2, and long enough (0.12 ms) that the host
has launched everything before the first kernel starts."""
_SEED = 5

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    warm_up_seconds: float
    """All contestants in turn, before the first sample."""
    seconds: float
    """Device time of all samples together, as far as `least` and `most` allow."""
    least: int
    """Samples of each contestant."""
    most: int


THOROUGH = Effort(warm_up_seconds=0.3, seconds=1.2, least=12, most=40)
QUICK = Effort(warm_up_seconds=0.02, seconds=0.0, least=7, most=7)


@dataclass(frozen=True, slots=True)
class Race:
    """Milliseconds between the events around each call, by contestant, in the order taken."""

    device_ms: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """Milliseconds."""
        return float(np.median(self.device_ms[name]))

    def ratio(self, slower: str, faster: str) -> Interval:
        """Median over median, with its 95 % bootstrap interval over the rounds."""
        rounds = ([(sample,) for sample in self.device_ms[name]] for name in (slower, faster))
        return ratio_of_medians(*rounds)


def race(calls: Mapping[str, Call], effort: Effort) -> Race:
    """Rounds of one call of each contestant, whose order is drawn anew for every round."""
    flush = torch.empty(_FLUSHED, dtype=torch.uint8, device="cuda")
    order = np.random.default_rng(_SEED)
    names = list(calls)
    round_ms = _warm_up(flush, calls, effort.warm_up_seconds)
    wanted = int(effort.seconds * 1e3 / round_ms)
    device_ms: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    try:
        for _ in range(min(max(wanted, effort.least), effort.most)):
            for index in order.permutation(len(names)):
                device_ms[names[index]].append(_once(flush, calls[names[index]]))
    finally:
        gc.enable()
    return Race(device_ms)


def _warm_up(flush: torch.Tensor, calls: Mapping[str, Call], seconds: float) -> float:
    """Milliseconds of one call of each, once the clocks have settled."""
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 2 or time.perf_counter() < deadline:
        total = sum(_once(flush, call) for call in calls.values())
        rounds += 1
    return total


def _once(flush: torch.Tensor, call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush.zero_()
    start.record()
    result = call()
    end.record()
    torch.cuda.synchronize()
    del result  # kept until here: freeing it earlier would hand its memory to the call itself
    return float(start.elapsed_time(end))


def host_ms(call: Call, count: int) -> float:
    """Median milliseconds from a call on an idle device to the end of its work, L2 warm."""
    samples = []
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e3)
    return float(np.median(samples))
