"""The order of a suite: what took longest in an earlier run begins first."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.earlier import seconds_before
from kernelwright.suite.journal import Event, Journal
from kernelwright.suite.run import Run, in_turn

from .conftest import SETTINGS, Audience, MakeTask, make_pool, row_of

TOOK: Mapping[str, Mapping[str, float]] = {
    "short": {"capture": 1.0, "verify": 2.0},
    "long": {"capture": 1.0, "verify": 40.0},
    "middle": {"verify": 9.0},
    "lost": {},
}


def journal(folder: Path) -> Path:
    with Journal(folder) as lines:
        for name, seconds in TOOK.items():
            lines.append(Event.DONE, row=row_of(name, seconds=seconds).to_json())
    return folder


def results(folder: Path) -> Path:
    rows = [{"problem": name, "seconds": seconds} for name, seconds in TOOK.items()]
    path = folder / "results.json"
    path.write_text(json.dumps({"rows": rows}))
    return path


@pytest.mark.parametrize("write", [journal, results])
def test_seconds_of_a_run_and_of_its_results(tmp_path: Path, write: object) -> None:
    assert callable(write)
    place = write(tmp_path)
    assert seconds_before(place, ["long", "short", "lost", "new"]) == {"long": 41.0, "short": 3.0}


def test_what_has_no_times_is_a_usage_error(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    text = tmp_path / "text.json"
    other.write_text("[1]")
    text.write_bytes(b"\xff no JSON")
    for place in (tmp_path / "nowhere", other, text, results(tmp_path)):
        with pytest.raises(UsageError) as error:
            seconds_before(place, ["new"])
        assert place.name in error.value.message


def test_the_longest_come_first_and_before_them_what_is_not_known(make_task: MakeTask) -> None:
    seconds = {"short": 3.0, "long": 41.0, "middle": 9.0}
    names = ["short", "new", "long", "lost", "middle"]
    order = [
        task.problem for task in in_turn([make_task("answer", problem=n) for n in names], seconds)
    ]
    assert sorted(order[:2]) == ["lost", "new"]
    assert order[2:] == ["long", "middle", "short"]


def test_long_ones_are_begun_beside_others_and_short_ones_last(make_task: MakeTask) -> None:
    seconds = dict(zip("fbdaec", (6.0, 2.0, 4.0, 1.0, 5.0, 3.0), strict=True))
    tasks = [make_task("answer", problem=name) for name in "abcdef"]
    assert [task.problem for task in in_turn(tasks, seconds)] == [*"fdecba"]


def test_a_run_begins_in_that_order(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    tasks = [make_task("answer", problem=name) for name in ("short", "long", "middle")]
    run = Run(tmp_path / "run", SETTINGS)
    run.work(
        tasks,
        make_pool,
        slots=1,
        facts={},
        audience=audience,
        seconds=seconds_before(results(tmp_path), TOOK),
    )
    begun = [line.split()[0] for line in (tmp_path / "begun.txt").read_text().splitlines()]
    assert begun == ["long", "middle", "short"]
