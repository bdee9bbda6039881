"""A card that processes use in turns, and what a call on it costs: time, wall time, memory."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelwright.worker.card.lease import Lease

Call = Callable[[], object]

_FLUSH_BYTES = 256 * 2**20
"""More than any L2 holds."""
_CYCLES_PER_SECOND = 2e9
"""Of `torch.cuda._sleep`, at the highest clock."""


class Card:
    """One process's turns on a device; what it launched is done when a turn ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.waited = 0.0
        """Seconds in which others had the device."""
        self._lease = Lease(0)
        self.is_mine = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The device for this process alone; a turn within a turn is the same turn."""
        if self.is_mine:
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def given_back(self) -> Iterator[None]:
        """Others have the device while this process compiles."""
        if not self.is_mine:
            yield
            return
        self._give()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        began = time.monotonic()
        self._lease.claim(lambda: None)
        self.waited += time.monotonic() - began
        self.is_mine = True

    def _give(self) -> None:
        self.synchronize()
        self.is_mine = False
        self._lease.drop()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def device_ms(card: Card, call: Call, budget_ms: float = 150.0) -> float:
    """Milliseconds of a call between two events with a cold L2, the median of several.

    The card is kept busy while the host launches each, so that the host's time is not in it as long
    as a call has fewer launches than the queue holds. On a CPU: the wall clock.
    """
    if card.device.type != "cuda":
        return wall_ms(card, call, budget_ms)
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=card.device)
    once, launching = _once(card, call)
    found = []
    for _ in range(_repeats(once, budget_ms)):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(int(_CYCLES_PER_SECOND * min(0.1, 1.5 * launching + 1e-4)))
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop))
    return statistics.median(found)


def wall_ms(card: Card, call: Call, budget_ms: float = 150.0) -> float:
    """Milliseconds of a call in a loop that ends with a synchronisation, the least of three."""
    once, _ = _once(card, call)
    repeats = _repeats(once, budget_ms)
    found = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        card.synchronize()
        found.append((time.perf_counter() - began) / repeats)
    return min(found) * 1e3


def peak_bytes(card: Card, call: Call) -> int | None:
    """The most bytes of the allocator in a call, beyond those before it; None on a CPU."""
    if card.device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del result
    return peak


def kernel_ms(card: Card, call: Call, most: int = 40) -> dict[str, tuple[float, int]]:
    """Milliseconds and launches of the kernels that take most of a call; none on a CPU."""
    if card.device.type != "cuda":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    found: dict[str, Any] = {
        it.key[:100]: (round(it.device_time_total / 1e3, 4), it.count)
        for it in profile.key_averages()
        if it.device_time_total > 0
    }
    return dict(sorted(found.items(), key=lambda it: -it[1][0])[:most])


def _once(card: Card, call: Call) -> tuple[float, float]:
    """Seconds of a warm call, and of launching it."""
    call()
    card.synchronize()
    began = time.perf_counter()
    call()
    launched = time.perf_counter() - began
    card.synchronize()
    return time.perf_counter() - began, launched


def _repeats(seconds: float, budget_ms: float) -> int:
    return max(5, min(30, int(budget_ms / max(seconds * 1e3, 1e-3))))
