"""Processes take a card into use a few at a time, and nobody's memory waits behind the others.

The driver makes a context under one lock of the whole machine, whichever card it is for: thirty-two
at once take as long as one after the other, and meanwhile each call for memory of those that are
already at work stands in the same queue.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kernelwright.worker.card.lease import is_locked_by_us, lock_folder
from kernelwright.worker.timeline import Timeline

_AT_A_TIME = 2
"""One of them has the driver's lock, the other does what it does without."""
_PATIENCE = 60.0
"""Seconds after which a process goes ahead: this is a courtesy, and a stranger may lack it."""
_POLL = 0.005


def starts_of_machine() -> tuple[str, ...]:
    """Files of which a process holds one while it takes its card into use."""
    paths = [lock_folder() / f"start-{place}.lock" for place in range(_AT_A_TIME)]
    for path in paths:
        path.touch(mode=0o600)
    return tuple(str(path) for path in paths)


def take(device: torch.device, starts: tuple[str, ...], timeline: Timeline) -> None:
    """Make this process's context on `device` when it is its turn."""
    with its_turn(starts):
        timeline.mark("its turn")
        # Else PyTorch asks NVML how many there are, which starts with a look at all of the machine.
        torch.cuda._cached_device_count = torch._C._cuda_getDeviceCount()
        torch.cuda.set_device(device)
        timeline.mark("context")


@contextmanager
def its_turn(starts: tuple[str, ...]) -> Iterator[None]:
    """Wait for one of the files `starts_of_machine`, if there are any, and hold it meanwhile.

    They are only read, so a process that may write nowhere can wait as well.
    """
    files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in starts]
    try:
        deadline = time.monotonic() + _PATIENCE
        while files and not any(map(is_locked_by_us, files)) and time.monotonic() < deadline:
            time.sleep(_POLL)
        yield
    finally:
        for file in files:
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork made meanwhile would hold it
            os.close(file)
