"""How long threads waited for a core, as the kernel counts it.

The second number of /proc/PID/schedstat is the time in nanoseconds that a thread was ready to run
and did not (Documentation/scheduler/sched-stats.rst of the kernel). No process can change what is
written there of it, but any can make itself wait.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HERE = "thread-self"
"""The thread that asks."""


def waited_ms(threads: Sequence[str]) -> float:
    """Milliseconds that threads have waited since they began, by their names in /proc.

    A process's number names its first thread. What the kernel does not tell counts as none.
    """
    waited = 0
    for name in threads:
        with suppress(OSError, ValueError, IndexError):
            waited += int(Path("/proc", name, "schedstat").read_text().split()[1])
    return waited * 1e-6
