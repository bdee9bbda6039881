"""Landlock through its system calls: files, TCP, and signals to processes outside.

https://docs.kernel.org/userspace-api/landlock.html; versions ("ABI") 1 to 6 are used as far as the
kernel has them. It needs no privilege, and holds for this thread and all that it starts.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls, with the same numbers on every architecture."""
_ASK_VERSION = 1
_PATH_BENEATH = 1
_O_PATH = os.O_PATH

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
"""Rights that a rule on something other than a folder may give."""
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of rights on files that each version knows; 16 from version 5 on."""
_MOST_RIGHTS = 16

_TCP_SINCE, _SCOPES_SINCE = 4, 6
"""Versions of Landlock."""
_TCP = 0b11
"""Binding and connecting."""
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "dri", "kfd")
_DEVICE_PREFIXES = ("nvidia",)


class _RulesetAttributes(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneathAttributes(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def version() -> int:
    """The kernel's version of Landlock; 0 where it has none or it is switched off."""
    return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Why each protection is not in force; empty where it is."""

    files: str = ""
    tcp: str = ""
    signals: str = ""


def restrict(writable: Iterable[Path]) -> Missing:
    """Reading everywhere, writing below `writable` and to devices; no TCP, no signals outside."""
    abi = version()
    if abi < 1:
        absent = "this kernel has no Landlock"
        return Missing(files=absent, tcp=absent, signals=absent)
    all_rights = (1 << _RIGHTS_OF_VERSION.get(abi, _MOST_RIGHTS)) - 1
    # All in one set of rules: a second one would forbid renaming between the folders of the first.
    attributes = _RulesetAttributes(
        handled_access_fs=all_rights,
        handled_access_net=_TCP if abi >= _TCP_SINCE else 0,
        scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= _SCOPES_SINCE else 0,
    )
    size = 24 if abi >= _SCOPES_SINCE else 16 if abi >= _TCP_SINCE else 8
    rules = [(Path("/"), _READING)]
    rules += [(path, all_rights) for path in writable]
    rules += [(path, _READING | _WRITE_FILE | _IOCTL_DEVICE) for path in _devices()]
    # CUDA writes the names of its threads there, and does not start if it cannot.
    rules += [(_pinned(Path("/proc/self/task")), _READING | _WRITE_FILE | _TRUNCATE)]
    failed = _enforce(attributes, size, rules, all_rights)
    if failed:
        return Missing(files=failed, tcp=failed, signals=failed)
    return Missing(
        tcp="" if abi >= _TCP_SINCE else f"Landlock {abi} does not know TCP",
        signals="" if abi >= _SCOPES_SINCE else f"Landlock {abi} does not know signals",
    )


def _pinned(path: Path) -> Path:
    """`path`, kept open for good: in /proc a rule is forgotten with the folder it was made for."""
    os.open(path, _O_PATH | os.O_CLOEXEC)
    return path


def _devices() -> list[Path]:
    """What a process needs under /dev; shared memory is not among it."""
    return [
        path
        for path in Path("/dev").iterdir()
        if path.name in _DEVICES or path.name.startswith(_DEVICE_PREFIXES)
    ]


def _enforce(
    attributes: _RulesetAttributes, size: int, rules: list[tuple[Path, int]], known: int
) -> str:
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return f"Landlock refused the rules: {_last_error()}"
    try:
        for path, rights in rules:
            failed = _allow(ruleset, path, rights & known)
            if failed:
                return failed
        if _call(_RESTRICT_SELF, ruleset, 0) < 0:
            return f"Landlock could not be entered: {_last_error()}"
    finally:
        os.close(ruleset)
    return ""


def _allow(ruleset: int, path: Path, rights: int) -> str:
    try:
        descriptor = os.open(path, _O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""  # what is not there cannot be written to
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = _PathBeneathAttributes(allowed_access=rights, parent_fd=descriptor)
        if _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0) < 0:
            return f"Landlock refused a rule for {path}: {_last_error()}"
    finally:
        os.close(descriptor)
    return ""


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    # As long: an int is passed in half a register, whose other half the kernel reads as well.
    return int(library.syscall(ctypes.c_long(number), *(_as_argument(it) for it in arguments)))


def _as_argument(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _last_error() -> str:
    return os.strerror(ctypes.get_errno())
