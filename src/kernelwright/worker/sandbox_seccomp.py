"""A seccomp filter: system calls that no kernel for a GPU needs are refused with EPERM.

The network (every kind of socket but a pair that is connected already), other processes' memory,
the clock that time is taken with, io_uring (which goes around such filters), and what changes the
machine. As a filter of classic BPF over `struct seccomp_data`:
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_FIELD, _ARCHITECTURE_FIELD = 0, 4
"""Offsets in `struct seccomp_data`."""
_OTHER_NUMBERS = 0x40000000
"""x86-64 has its calls a second time from here on (x32)."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit_number: int
    refused: Mapping[str, int]


_SAME_EVERYWHERE = {
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsmount": 432,
    "mount_setattr": 442,
}

# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_ARCHITECTURES: Mapping[str, _Architecture] = {
    "x86_64": _Architecture(
        0xC000003E,
        _SAME_EVERYWHERE
        | {
            "socket": 41,
            "ptrace": 101,
            "pivot_root": 155,
            "chroot": 161,
            "settimeofday": 164,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "sethostname": 170,
            "setdomainname": 171,
            "init_module": 175,
            "delete_module": 176,
            "clock_settime": 227,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        _SAME_EVERYWHERE
        | {
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "clock_settime": 112,
            "ptrace": 117,
            "reboot": 142,
            "sethostname": 161,
            "setdomainname": 162,
            "settimeofday": 170,
            "socket": 198,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
    ),
}


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def restrict_system_calls() -> str:
    """Enter the filter; needs no_new_privs. Returns why that failed, or nothing."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return f"no filter of system calls for {machine}"
    rows = _rows(_ARCHITECTURES[machine])
    instructions = (_Instruction * len(rows))(*(_Instruction(*row) for row in rows))
    program = _Program(len(rows), instructions)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0:
        return ""
    return f"the kernel refused a filter: {os.strerror(ctypes.get_errno())}"


def _rows(architecture: _Architecture) -> list[tuple[int, int, int, int]]:
    """(code, jump if true, jump if false, value); the refusal is the last row."""
    numbers = sorted(architecture.refused.values())
    tests = [
        (_LOAD, 0, 0, _ARCHITECTURE_FIELD),
        (_JUMP_EQUAL, 1, 0, architecture.audit_number),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_FIELD),
        (_JUMP_AT_LEAST, len(numbers) + 1, 0, _OTHER_NUMBERS),
    ]
    for place, number in enumerate(numbers):
        tests.append((_JUMP_EQUAL, len(numbers) - place, 0, number))
    return [*tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
