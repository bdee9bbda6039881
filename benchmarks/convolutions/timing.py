"""Time of a call on the card alone, and its error: with the host's time hidden by a busy card."""

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_FLUSH_BYTES = 256 * 2**20
"""More than any L2 holds."""
_CYCLES = 2e9
"""A second of `torch.cuda._sleep`, at the highest clock."""
_CALLS = 12


def card_ms(function: Callable[[], object], budget_ms: float = 120.0) -> float:
    """Milliseconds of a call with a cold L2, the median of several.

    The card is kept busy while the host launches them all, so that what the host needs for a call
    is in none.
    """
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    function()
    torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    launched = time.perf_counter() - began
    torch.cuda.synchronize()
    once_ms = (time.perf_counter() - began) * 1e3
    repeats = max(5, min(30, int(budget_ms / max(once_ms, 1e-3))))
    torch.cuda._sleep(int(_CYCLES * min(0.5, 1.5 * repeats * (launched + 1e-4))))
    events = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        function()
        stop.record()
        events.append((start, stop))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in events)


def _synchronize(_: object) -> None:
    torch.cuda.synchronize()


def wall_ms(function: Callable[[], T], wait: Callable[[T], object] = _synchronize) -> float:
    """Milliseconds of a call of several in a row; `wait` takes the last one's result."""
    for _ in range(3):
        found = function()
    wait(found)
    began = time.perf_counter()
    for _ in range(_CALLS):
        found = function()
    wait(found)
    return (time.perf_counter() - began) / _CALLS * 1e3


def doubled(value: Any) -> Any:
    """A tensor of real numbers in float64; anything else as it is."""
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_real else value


def rms_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Root mean square of the error over that of the exact result."""
    return ((result.double() - exact).norm() / exact.norm()).item()
