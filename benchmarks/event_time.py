"""Time of a call on the card, between two events."""

import statistics
from collections.abc import Callable

import torch


def median_ms(function: Callable[[], object], repeats: int) -> float:
    """Milliseconds of a call, the median of `repeats` after two that warm up.

    All calls are in the stream at once: the host's gaps between them are not in it where the card
    is slower than the host.
    """
    for _ in range(2):
        function()
    events = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        stop.record()
        events.append((start, stop))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in events)
