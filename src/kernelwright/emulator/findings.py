"""What the emulator's checks found: one record per kind, kernel and line."""

import ctypes
import json
import os.path
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

Index = tuple[int, int, int]


class FindingKind(Enum):
    """The mistakes that the emulator looks for."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned access"
    UNINITIALISED_READ = "uninitialised read"
    RACE = "race"
    BARRIER_DIVERGENCE = "divergent barrier"
    DEADLOCK = "deadlock"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One mistake of a kernel."""

    kind: FindingKind
    kernel: str
    """Name of the kernel, as its launch spells it."""
    file: str
    """The source text: "<extension name>/cuda.cu", or the file where there was one."""
    line: int
    """Line in that text, from 1; 0 where it is not known."""
    block: Index
    """blockIdx of the thread that was caught first."""
    thread: Index
    """Its threadIdx."""
    other: Index | None
    """threadIdx of the second thread of a race."""
    other_block: Index | None
    """blockIdx of that one."""
    other_line: int | None
    """Line of the second access of a race, where it is known."""
    count: int
    """How many times it was seen."""
    message: str
    """What happened, in one sentence."""

    @property
    def location(self) -> str:
        """The place as "softmax/cuda.cu:12"."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def to_json(self) -> dict[str, object]:
        """The finding as plain JSON values."""
        return {**asdict(self), "kind": self.kind.name}


def finding_from_json(values: Mapping[str, Any]) -> Finding:
    """The finding that `to_json` or the runtime library wrote."""
    fields = dict(values)
    fields["kind"] = FindingKind[fields["kind"]]
    for name in ("block", "thread", "other", "other_block"):
        x, y, z = fields[name] or (None, None, None)
        fields[name] = None if x is None else (x, y, z)
    # Files of a unit are relative to a folder that debugging information calls ".".
    fields["file"] = os.path.normpath(fields["file"]) if fields["file"] else ""
    return Finding(**fields)


def read_findings(runtime: ctypes.CDLL) -> tuple[Finding, ...]:
    """All that the runtime library has found since it was cleared, in that order."""
    return tuple(finding_from_json(values) for values in _json_of(runtime.kwemu_findings))


def read_launches(runtime: ctypes.CDLL) -> dict[str, int]:
    """Launches since the count was last set to nothing, by the name of the kernel."""
    return {str(name): int(count) for name, count in _json_of(runtime.kwemu_launches).items()}


def _json_of(write: Callable[[ctypes.Array[ctypes.c_char] | None, int], int]) -> Any:
    size = write(None, 0)
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = write(buffer, size)
        if needed <= size:
            return json.loads(buffer.value)
        size = needed
