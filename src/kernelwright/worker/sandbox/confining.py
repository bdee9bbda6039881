"""What a child process may do: limits that it lays on itself before anything strange runs in it.

    protections = confine(Confinement(writable=(str(folder),)))

A confinement cannot be lifted again and holds for every process that the child starts. Each part
says whether it is in force, so that a verdict can name what was missing on the machine.

A confined process can read files, and write only below its own folders; it reaches no network, no
other process (no signal, no debugger, no /proc/PID/mem) and no setuid program. Inside itself it can
do what it likes, and talk to the devices it needs. That is why nothing it says about itself
decides anything.
"""

import ctypes
import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kernelwright.worker.sandbox.landlock import restrict
from kernelwright.worker.sandbox.seccomp import restrict_system_calls
from kernelwright.worker.timeline import Moment

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_OOM_SCORE = "1000"
"""The kernel's first choice when memory runs out: this process, never the one that judges."""


class Trust(Enum):
    """Whose code a child runs."""

    OWN = "own"
    """Ours and the problem's: limits, but the same files as the user."""
    STRANGER = "stranger"
    """A candidate's: everything there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The limits of one child."""

    trust: Trust = Trust.OWN
    writable: tuple[str, ...] = ()
    """Folders that a stranger may write below, absolute."""
    processes: int = 512
    """Processes that it may have at a time, compilers among them."""
    memory_bytes: int = 0
    """Resident memory of all of them together; 0: nine tenths of the machine's."""
    file_bytes: int = 64 << 30
    """Largest file it may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """One part of a confinement."""

    name: str
    """"files", "network"."""
    missing: str
    """Why it is not in force; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a child says when it is ready, before any code of a candidate's runs in it."""

    pid: int
    protections: tuple[Protection, ...]
    moments: tuple[Moment, ...] = ()
    """When it had done what."""


def confine(confinement: Confinement) -> tuple[Protection, ...]:
    """Lay the limits on this process; only for a process of one thread."""
    found = [_limits(confinement), _no_new_privileges()]
    match confinement.trust:
        case Trust.OWN:
            # What a stranger of the same user cannot attach to, even where Landlock is missing.
            _prctl(_PR_SET_DUMPABLE, 0)
        case Trust.STRANGER:
            missing = restrict([Path(folder) for folder in confinement.writable])
            calls = restrict_system_calls()
            found += [
                Protection(name="files", missing=missing.files),
                # Sockets are refused as such; without that only TCP is.
                Protection(name="network", missing=calls and (missing.tcp or calls)),
                Protection(name="other processes", missing=missing.signals or calls),
            ]
    return tuple(found)


def _limits(confinement: Confinement) -> Protection:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, confinement.file_bytes)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    # The number of processes is watched by the warden: the kernel's own limit counts those of the
    # user, not those of one child, and does not hold for root.
    return Protection(name="limits", missing="")


def _lower(limit: int, value: int) -> None:
    _, most = resource.getrlimit(limit)
    if most != resource.RLIM_INFINITY:
        value = min(value, most)
    resource.setrlimit(limit, (value, value))


def _no_new_privileges() -> Protection:
    failed = _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return Protection(name="privileges", missing=failed)


def _prctl(option: int, value: int) -> str:
    """Why prctl failed, or nothing."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) == 0:
        return ""
    return os.strerror(ctypes.get_errno())
