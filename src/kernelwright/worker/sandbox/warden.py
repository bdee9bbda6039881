"""The process between the judge and a child: it counts what the child starts, and ends it all.

    judge ── warden ── child ── compilers, threads, whatever it starts

Processes that leave the child's group, or lose their parent, become the warden's; so when the
child ends, or the judge says so, nothing of it stays. The warden ends as the child ended.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from kernelwright.worker.sandbox.confining import Confinement

TOO_MANY_PROCESSES = 98
TOO_MUCH_MEMORY = 97
"""Exit codes of a warden that ended its child."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_INTERVAL = 0.2
"""Seconds between two looks at the child's processes, at least."""
_SHARE_OF_LOOKING = 0.02
"""Share of a core: where there is much to look at, that is done less often."""
_LONGEST_END = 10.0
"""Seconds to wait for processes that the kernel does not let go at once."""
_MEMORY_SHARE = 0.9
_MOST_DESCRIPTORS = 1 << 16


def fork_under_warden(confinement: Confinement) -> None:
    """Return in a new child process; the calling one becomes its warden and never returns.

    Only for a process of one thread. The child leads a process group of its own.
    """
    signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # The judge's death is a request to end; ours ends the child at once.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child:
        _watch(child, confinement, signals)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)  # to be stopped, and go on, without the warden
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _watch(child: int, confinement: Confinement, signals: set[signal.Signals]) -> NoReturn:
    os.closerange(3, _MOST_DESCRIPTORS)  # the conversation is the child's
    pause = _INTERVAL
    while True:
        heard = signal.sigtimedwait(signals, pause)
        if heard is not None and heard.si_signo == signal.SIGTERM:
            end_descendants()
            os._exit(0)
        status = _reap(child)
        if status is not None:
            end_descendants()
            _end_like(status)
        began = time.process_time()
        excess = _excess(confinement)
        if excess:
            end_descendants()
            os._exit(excess)
        pause = max(_INTERVAL, (time.process_time() - began) / _SHARE_OF_LOOKING)


def _reap(child: int) -> int | None:
    """Collect whatever ended; the wait status of the child if it is among it."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _excess(confinement: Confinement) -> int:
    """The exit code for what there is too much of, or 0."""
    processes = family(os.getpid())
    if len(processes) > confinement.processes:
        return TOO_MANY_PROCESSES
    page = os.sysconf("SC_PAGE_SIZE")
    # Asked each time: the memory of a virtual machine grows.
    most = confinement.memory_bytes or int(os.sysconf("SC_PHYS_PAGES") * page * _MEMORY_SHARE)
    return TOO_MUCH_MEMORY if _resident_pages(processes) * page > most else 0


def _resident_pages(processes: list[int]) -> int:
    """Pages that these processes have to themselves."""
    total = 0
    for pid in processes:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except (OSError, ValueError):
            continue  # it has ended
        total += int(resident) - int(shared)
    return total


def family(root: int) -> list[int]:
    """All processes below `root`, as each thread of the kernel remembers whom it has started.

    Costs what the family costs and not what the machine has, but may miss one that is just being
    started or has just ended.
    """
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return list(descendants(root))
    found = [root]
    for pid in found:
        with suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                children = (thread / "children").read_text()
                found.extend(int(child) for child in children.split())
    return found[1:]


def descendants(root: int) -> Iterator[int]:
    """All processes below `root`, those that are dead and not collected left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # A process whose first thread alone has ended counts as dead, but lives.
        if fields[0] != "Z" or int(fields[17]) > 1:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        below = children.get(pid, [])
        found.extend(below)
        yield from below


def end_descendants() -> None:
    """Kill everything below this process, also what is being forked meanwhile."""
    deadline = time.monotonic() + _LONGEST_END
    own = os.getpid()
    while time.monotonic() < deadline:
        alive = list(descendants(own))
        if not alive:
            _reap(0)
            return
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap(0)
        time.sleep(0.001)


def _end_like(status: int) -> NoReturn:
    """End as the child did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
