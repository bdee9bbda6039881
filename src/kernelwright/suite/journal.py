"""The append-only memory of a run: JSON lines, each on disk before the next thing is done.

    with Journal(folder) as journal:
        journal.append(Event.DONE, row=row.to_json())
    rows = read_journal(folder).rows

Each line is one write to a file opened for appending, so that several writers do not mix. A line
that was torn by a crash is ended by the next writer and ignored by readers.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelwright.errors import ExitCode, KernelwrightError
from kernelwright.report.row import Row, read_row
from kernelwright.suite.problems import natural
from kernelwright.verify.records import RecordError

FILE = "journal.jsonl"
VERSION = 1
"""Version of the lines below; a journal of another version is not touched."""


class JournalError(KernelwrightError):
    """The folder of a run cannot be read or continued."""

    exit_code = ExitCode.USAGE
    next_step = "Name another folder with --run, or leave --run out: a new one is made."


class Event(Enum):
    """What a line says."""

    RUN = "run"
    """A suite was started, or continued: settings and provenance."""
    STARTED = "started"
    DONE = "done"
    """The result of a problem; the last one of a problem counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that a journal says."""

    headers: tuple[Mapping[str, Any], ...]
    """The starts of the run, the first one first."""
    rows: tuple[Row, ...]
    """The last result of each problem, sorted by name and number."""
    unfinished: tuple[str, ...]
    """Problems that were started and have no result: to be done again."""

    @property
    def settings(self) -> Any:
        """What the run was started with; None of a new one."""
        return self.headers[0]["settings"] if self.headers else None


class Journal:
    """An open journal; a line is on disk when `append` returns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        self._end_torn_line()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def append(self, event: Event, **fields: Any) -> None:
        """Write one line and wait until the disk has it."""
        self._write(json.dumps({"event": event.value, **fields}).encode() + b"\n")

    def _end_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._write(b"\n")

    def _write(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise JournalError(f"only {written} of {len(line)} bytes were written: is it full?")
        os.fsync(self._descriptor)


def read_journal(folder: Path) -> Record:
    """What the journal in `folder` says so far, nothing if there is none.

    Raises JournalError for a journal of another version, and for a file in the folder's place.
    """
    if folder.is_file():
        raise JournalError(f"{folder} is a file, not the folder of a run", location=str(folder))
    headers: list[Mapping[str, Any]] = []
    rows: dict[str, Row] = {}
    started: dict[str, None] = {}
    for line in _lines(folder / FILE):
        match line:
            case {"event": "run", "version": version, "settings": _}:
                if version != VERSION:
                    raise JournalError(f"{folder} is a run of version {version}, not {VERSION}")
                headers.append(line)
            case {"event": "started", "problem": str(problem)}:
                started[problem] = None
            case {"event": "done", "row": plain}:
                row = _row(folder, plain)
                rows[row.problem] = row
                started.pop(row.problem, None)
    return Record(
        headers=tuple(headers),
        rows=tuple(rows[name] for name in sorted(rows, key=natural)),
        unfinished=tuple(started),
    )


def _row(folder: Path, plain: object) -> Row:
    try:
        return read_row(plain)
    except RecordError as error:
        raise JournalError(f"{folder} has a result that cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[Any]:
    """The JSON values of whole lines; a torn one is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue
