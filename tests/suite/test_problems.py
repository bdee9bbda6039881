"""Which files are problems, in which order, and with which candidates."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.problems import Shard, find_problems, tasks_of
from kernelwright.suite.task import Work

from .conftest import SETTINGS

FILES = (
    "level1/10_c.py",
    "level1/2_b_relu.py",
    "level1/2_b_relu_new.py",
    "level2/1_a.py",
    "level2/__init__.py",
    ".hidden/1_x.py",
    "readme.md",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "bench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path / "bench"


def names(*places: Path, select: tuple[str, ...] = (), shard: str = "0/1") -> list[str]:
    return [it.name for it in find_problems(places, select, Shard.parse(shard))]


def test_a_folder_is_searched_and_sorted_by_number(folder: Path) -> None:
    assert names(folder) == ["level1/2_b_relu", "level1/10_c", "level2/1_a"]
    assert [it.level for it in find_problems([folder])] == ["level1", "level1", "level2"]


def test_patterns_match_the_path_or_the_last_part(folder: Path) -> None:
    assert names(folder, select=("level1/*",)) == ["level1/2_b_relu", "level1/10_c"]
    assert names(folder, select=("*relu*", "1_a")) == ["level1/2_b_relu", "level2/1_a"]


def test_files_can_be_named(folder: Path) -> None:
    assert names(folder / "level2" / "1_a.py") == ["1_a"]


def test_shards_have_every_problem_once(folder: Path) -> None:
    parts = [names(folder, shard=f"{index}/2") for index in range(2)]
    assert sorted([*parts[0], *parts[1]]) == sorted(names(folder))
    assert parts[0] == ["level1/2_b_relu", "level2/1_a"]


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError, match="shard"):
        Shard.parse(text)


def test_nothing_and_doubled_names_are_errors(folder: Path) -> None:
    with pytest.raises(UsageError, match="no problem files"):
        names(folder, select=("nothing",))
    with pytest.raises(UsageError, match="no problem files"):
        names(folder / "level1" / "2_b_relu_new.py", select=("x",))
    with pytest.raises(UsageError, match="called 1_a"):
        names(folder / "level2", folder / "level2" / "1_a.py")
    with pytest.raises(UsageError, match="there is no"):
        names(folder / "level9")


def test_candidates_lie_at_the_same_path(folder: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "candidates"
    (candidates / "level1").mkdir(parents=True)
    (candidates / "level1" / "2_b_relu.py").write_text("same path")
    (candidates / "1_a_new.py").write_text("flat")
    settings = replace(SETTINGS, work=Work.JUDGE)
    tasks = {task.problem: task for task in tasks_of(find_problems([folder]), settings, candidates)}
    assert tasks["level1/2_b_relu"].candidate == "same path"
    assert tasks["level2/1_a"].candidate == "flat"
    assert tasks["level1/10_c"].candidate_path == ""


def test_another_text_is_another_task(folder: Path) -> None:
    (before,) = tasks_of(find_problems([folder / "level2"]), SETTINGS)
    (folder / "level2" / "1_a.py").write_text("# changed\n")
    (after,) = tasks_of(find_problems([folder / "level2"]), SETTINGS)
    assert before.key != after.key
