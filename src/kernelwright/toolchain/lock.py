"""Locks between processes that say who holds them and outlive nobody.

    with exclusive(folder / "locks" / "abc", what="library abc", timeout=600.0):
        ...

The lock is the kernel's (flock): it ends with the process that holds it, also on kill -9. Beside it
lies a note with pid, host, time and command, for the sentence that a waiting process prints.
"""

import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from kernelwright.errors import CacheFolderError, LockTimeoutError

_LOOK_AGAIN_SECONDS = 0.5
"""How often a waiting process looks whether the holder is still alive."""
_COMMAND_CHARACTERS = 160
"""Longer commands are cut in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One run of one process; pid numbers are reused, the time of birth tells runs apart."""

    pid: int
    host: str
    born: int
    """Start time in clock ticks since the host booted (field 22 of /proc/PID/stat)."""

    def alive(self) -> bool:
        """False only where we know: same host, and no such process (or only its zombie)."""
        return self.host != socket.gethostname() or _birth(self.pid) == self.born


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock."""

    process: Process
    since: float
    """When the lock was taken, seconds since the epoch."""
    command: str
    """Its command line, cut to a readable length."""

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S UTC", time.gmtime(self.since))
        seconds = max(0.0, time.time() - self.since)
        return (
            f"process {self.process.pid} on {self.process.host} "
            f"since {clock} ({seconds:.0f} s): {self.command}"
        )


def this_process() -> Process:
    """The process that asks."""
    pid = os.getpid()
    return Process(pid=pid, host=socket.gethostname(), born=_birth(pid) or 0)


def read_holder(lock_path: Path) -> Holder | None:
    """The note of whoever took the lock last, or None where there is none that can be read."""
    try:
        note = json.loads(_note_path(lock_path).read_text())
        process = Process(**note.pop("process"))
        return Holder(process=process, **note)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


@contextmanager
def exclusive(lock_path: Path, *, what: str, timeout: float) -> Iterator[None]:
    """Hold the lock at `lock_path` for the length of the block.

    A lock whose holder is dead, but which a child that it forked still keeps, is taken over: the
    block runs without it. So the block must be safe, if wasteful, to run twice at a time.

    Raises LockTimeoutError, which names the holder, after `timeout` seconds; CacheFolderError where
    there can be no lock.
    """
    lock = FileLock(lock_path)
    taken = _acquire(lock, lock_path, what=what, timeout=timeout)
    try:
        if taken:
            _write_note(lock_path)
        yield
    finally:
        if taken:
            _note_path(lock_path).unlink(missing_ok=True)
            lock.release()


def _acquire(lock: FileLock, lock_path: Path, *, what: str, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while True:
        remaining = deadline - time.monotonic()
        try:
            lock.acquire(timeout=max(0.0, min(_LOOK_AGAIN_SECONDS, remaining)), poll_interval=0.02)
        except Timeout:
            holder = read_holder(lock_path)
            if holder is not None and not holder.process.alive():
                return False
            if remaining <= 0.0:
                raise LockTimeoutError(
                    f"waited {timeout:.0f} s for {what}, locked by {holder or 'an unknown process'}"
                ) from None
        except OSError as error:
            raise CacheFolderError(f"cannot lock {lock_path}: {error.strerror}") from error
        else:
            return True


def _note_path(lock_path: Path) -> Path:
    return lock_path.with_name(lock_path.name + ".holder")


def _write_note(lock_path: Path) -> None:
    command = shlex.join(sys.orig_argv)
    if len(command) > _COMMAND_CHARACTERS:
        command = command[: _COMMAND_CHARACTERS - 3] + "..."
    holder = Holder(process=this_process(), since=time.time(), command=command)
    temporary = _note_path(lock_path).with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(holder)))
    temporary.replace(_note_path(lock_path))


def _birth(pid: int) -> int | None:
    """Start time of a live process in clock ticks, None if there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the command in brackets and may hold spaces and brackets itself.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])
