"""The tuning database: what comes back, who may write at a time, and what a crash leaves."""

import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernelwright.tune.database import Database, Key, Row, TuningDatabaseError, rows_of
from kernelwright.tune.tuner import Ending, Failure, Timing, Trial, TuningResult, Variant

_KEY = Key(kernel="k", sizes=(2048, 8192), card="NVIDIA H200", compiler="nvcc 13.0.88")
_WHEN = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)


def _row(tile: int, seconds: float, key: Key = _KEY) -> Row:
    config = {"tile": tile, "stages": [2, 3], "vector": True}
    return Row(key=key, config=config, seconds=seconds, samples=10, measured=_WHEN)


def test_what_was_added_comes_back_fastest_first(tmp_path: Path) -> None:
    rows = (_row(64, 2e-3), _row(128, 1e-3), _row(32, 3e-3))
    with Database(tmp_path / "db") as database:
        assert database.best(_KEY) is None and not database.knows(_KEY.card)
        database.add(rows)
        assert database.knows(_KEY.card) and not database.knows("NVIDIA A100")
        assert database.rows(_KEY) == (rows[1], rows[0], rows[2])
    with Database(tmp_path / "db") as database:
        assert database.best(_KEY) == rows[1]


@pytest.mark.parametrize(
    "other",
    [
        replace(_KEY, kernel="other"),
        replace(_KEY, sizes=(8192, 2048)),
        replace(_KEY, card="NVIDIA A100"),
        replace(_KEY, compiler="nvcc 12.8.93"),
    ],
)
def test_another_key_knows_nothing_of_it(tmp_path: Path, other: Key) -> None:
    with Database(tmp_path / "db") as database:
        database.add([_row(64, 1.0)])
        assert database.rows(other) == ()
        database.add([_row(64, 2.0, other)])
        assert [row.seconds for row in database.rows(_KEY)] == [1.0]


def test_the_last_measurement_of_a_config_counts(tmp_path: Path) -> None:
    slower = replace(_row(64, 2.0), measured=_WHEN + timedelta(days=1))
    reordered = replace(slower, config=dict(reversed(slower.config.items())))
    with Database(tmp_path / "db") as database:
        database.add([_row(64, 1.0)])
        database.add([reordered])
        assert database.rows(_KEY) == (slower,)


def test_rows_of_a_tuning_are_those_that_ran() -> None:
    variants = [Variant(config={"tile": i}, source="", function="f") for i in range(2)]
    result = TuningResult(
        trials=(
            Trial(variant=variants[0], outcome=Failure(reason="no")),
            Trial(variant=variants[1], outcome=Timing(seconds=0.5, samples=7)),
        ),
        ending=Ending.COMPLETE,
        untried=0,
        seconds=1.0,
    )
    (row,) = rows_of(_KEY, result, measured=_WHEN)
    assert row == Row(key=_KEY, config={"tile": 1}, seconds=0.5, samples=7, measured=_WHEN)
    (row,) = rows_of(_KEY, result)
    assert abs(datetime.now(UTC) - row.measured) < timedelta(minutes=1)


def test_all_rows_or_none(tmp_path: Path) -> None:
    with Database(tmp_path / "db") as database:
        with pytest.raises(TuningDatabaseError):
            database.add([_row(1, 1.0), _row(2, -1.0)])
        assert database.rows(_KEY) == ()
        database.add([_row(1, 1.0)])
        assert len(database.rows(_KEY)) == 1


_WRITER = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from kernelwright.tune.database import Database, Key, Row

path, writer, ending = sys.argv[1:]
key = Key(kernel="k", sizes=(2048, 8192), card="NVIDIA H200", compiler="nvcc 13.0.88")

def row(i):
    return Row(
        key=key,
        config={"writer": int(writer), "i": i},
        seconds=1.0 + i,
        samples=1,
        measured=datetime.now(UTC),
    )

with Database(Path(path)) as database:
    for i in range(20):
        database.add([row(i)])
    if ending == "killed":
        with database._transaction():
            database._connection.execute("DELETE FROM timing")
            os.kill(os.getpid(), signal.SIGKILL)
"""


def _writer(path: Path, number: int, ending: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WRITER, str(path), str(number), ending]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def test_many_processes_write_at_a_time_and_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    writers = [_writer(path, i, "killed" if i == 0 else "normal") for i in range(4)]
    errors = [writer.communicate(timeout=60)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [-9, 0, 0, 0], errors
    with Database(path) as database:
        assert len(database.rows(_KEY)) == 4 * 20


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_text("hello, I am a text file, and long enough to be looked at\n" * 20)
    with pytest.raises(TuningDatabaseError, match=str(path)):
        Database(path)


def test_a_database_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(TuningDatabaseError, match="has version 7 of the table"):
        Database(path)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TuningDatabaseError, match="unable to open"):
        Database(tmp_path / "no" / "db")
