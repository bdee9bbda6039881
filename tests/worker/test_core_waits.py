"""What the kernel says of threads that wait for a core."""

import os
import time
from pathlib import Path

import pytest

from kernelwright.worker.timer.core_waits import HERE, waited_ms


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count")
def test_a_thread_that_shares_its_core_waits() -> None:
    core = min(os.sched_getaffinity(0))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        other = os.fork()
        if other == 0:
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                pass
            os._exit(0)
        before = waited_ms([HERE, str(other)])
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            pass
        waited = waited_ms([HERE, str(other)]) - before
        os.waitpid(other, 0)
    finally:
        os.sched_setaffinity(0, cores)
    # Two that spin on one core wait for as long as they run, together.
    assert 50 < waited < 2000


def test_what_the_kernel_does_not_tell_counts_as_none() -> None:
    assert waited_ms(["0", "no such process"]) == 0.0
