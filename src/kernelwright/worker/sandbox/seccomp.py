"""A seccomp filter: system calls that no kernel for a GPU needs are refused with EPERM.

The network (all sockets but those within the machine, and none may connect), other processes'
memory, the clock that time is taken with, io_uring (which goes around such filters), and what
changes the machine. As a filter of classic BPF over `struct seccomp_data`:
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_FIELD, _ARCHITECTURE_FIELD, _FIRST_ARGUMENT_FIELD = 0, 4, 16
"""Offsets in `struct seccomp_data`."""
_OTHER_NUMBERS = 0x40000000
"""x86-64 has its calls a second time from here on (x32)."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit_number: int
    socket: int
    """Refused but for sockets within the machine, which CUDA makes one of when it starts."""
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
        41,
        _SAME_EVERYWHERE
        | {
            "connect": 42,
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
        198,
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
            "connect": 203,
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
    head = [
        (_LOAD, 0, 0, _ARCHITECTURE_FIELD),
        (_JUMP_EQUAL, 1, 0, architecture.audit_number),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_FIELD),
    ]
    tail = [
        (_JUMP_EQUAL, 0, 2, architecture.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_FIELD),
        (_JUMP_EQUAL, 0, 1, socket.AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    tests = [(_JUMP_AT_LEAST, _OTHER_NUMBERS), *((_JUMP_EQUAL, number) for number in numbers)]
    refusing = [
        (code, len(tests) - place + len(tail) - 2, 0, value)
        for place, (code, value) in enumerate(tests)
    ]
    return [*head, *refusing, *tail]
