"""The tuning database: what was measured, for which kernel, sizes, card and compiler.

    with Database(database_path()) as database:
        database.add(rows_of(key, result))
        row = database.best(key)  # the fastest Config known, or None

Tuning writes rows, compiling reads the best one: neither knows the other. One sqlite file in WAL
mode, which any number of processes of one machine may read and write at a time. (WAL needs shared
memory between them: keep the file off network disks.)
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from kernelwright.errors import ExitCode, KernelwrightError
from kernelwright.tune.tuner import Timing, TuningResult

_VERSION = 1
"""Version of the table below; a file of another version is not touched."""
_BUSY_SECONDS = 30.0
"""How long to wait for another process's transaction; ours take milliseconds."""

_TABLE = """
CREATE TABLE timing (
    kernel TEXT NOT NULL,
    sizes TEXT NOT NULL,
    card TEXT NOT NULL,
    compiler TEXT NOT NULL,
    config TEXT NOT NULL,
    seconds REAL NOT NULL CHECK (seconds > 0),
    samples INTEGER NOT NULL CHECK (samples > 0),
    measured TEXT NOT NULL,
    PRIMARY KEY (kernel, sizes, card, compiler, config)
) WITHOUT ROWID
"""
# The last measurement of a Config replaces the one before: it was made with what is there now.
_INSERT = "INSERT OR REPLACE INTO timing VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = """
SELECT config, seconds, samples, measured FROM timing
WHERE kernel = ? AND sizes = ? AND card = ? AND compiler = ? ORDER BY seconds, config
"""

_SELECT_CARD = "SELECT 1 FROM timing WHERE card = ? LIMIT 1"


class TuningDatabaseError(KernelwrightError):
    """The tuning database cannot be read or written."""

    exit_code = ExitCode.DOES_NOT_BUILD
    next_step = "Move the file away; a new one is made, and tuning fills it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a measurement holds for; one of another card or compiler says nothing."""

    kernel: str
    """Content key of the kernel's description: what it computes, not how."""
    sizes: tuple[int, ...]
    """The sizes it was timed at, in the order of the description."""
    card: str
    """As `torch.cuda.get_device_name` gives it."""
    compiler: str
    """The CUDA compiler and its version: "nvcc 13.0.88"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured Config."""

    key: Key
    config: Mapping[str, object]
    """Tunables as plain JSON values."""
    seconds: float
    """Median time of one launch."""
    samples: int
    """Launches that the median is over."""
    measured: datetime
    """When, in UTC."""


def rows_of(key: Key, result: TuningResult, *, measured: datetime | None = None) -> tuple[Row, ...]:
    """The rows for all variants that ran; `measured` is now if it is not given."""
    when = measured or datetime.now(UTC)
    return tuple(
        Row(
            key=key,
            config=trial.variant.config,
            seconds=trial.outcome.seconds,
            samples=trial.outcome.samples,
            measured=when,
        )
        for trial in result.trials
        if isinstance(trial.outcome, Timing)
    )


class Database:
    """An open database. Of one thread; other threads and processes open their own."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; raises TuningDatabaseError if it is something else."""
        self._path = path
        with self._errors_named():
            self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            with self._errors_named():
                self._use_write_ahead_log()
                self._make_table()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is in it already."""
        self._connection.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Record the rows, all of them or, if this process dies, none."""
        records = [
            (*_columns(row.key), _text(row.config), row.seconds, row.samples, _utc(row.measured))
            for row in rows
        ]
        with self._transaction():
            self._connection.executemany(_INSERT, records)

    def rows(self, key: Key) -> tuple[Row, ...]:
        """All that is known for this key, the fastest first."""
        with self._errors_named():
            records = self._connection.execute(_SELECT, _columns(key)).fetchall()
        return tuple(
            Row(
                key=key,
                config=json.loads(config),
                seconds=seconds,
                samples=samples,
                measured=datetime.fromisoformat(measured),
            )
            for config, seconds, samples, measured in records
        )

    def knows(self, card: str) -> bool:
        """Whether anything was measured on such a card."""
        with self._errors_named():
            found = self._connection.execute(_SELECT_CARD, (card,)).fetchone()
        return found is not None

    def best(self, key: Key) -> Row | None:
        """The fastest Config known for this key."""
        return next(iter(self.rows(key)), None)

    def _use_write_ahead_log(self) -> None:
        # Two processes that switch a new file at a time get "locked" at once, without the waiting
        # that sqlite does elsewhere.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _make_table(self) -> None:
        with self._transaction():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._connection.execute(_TABLE)
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            elif version != _VERSION:
                raise TuningDatabaseError(
                    f"{self._path} has version {version} of the table, this kernelwright {_VERSION}"
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors_named():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TuningDatabaseError(f"{self._path}: {error}") from error


def _columns(key: Key) -> tuple[str, str, str, str]:
    return key.kernel, json.dumps(key.sizes), key.card, key.compiler


def _text(config: Mapping[str, object]) -> str:
    # Sorted, so that equal Configs are equal texts.
    return json.dumps(dict(config), sort_keys=True)


def _utc(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds")
