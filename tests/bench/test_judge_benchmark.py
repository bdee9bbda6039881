"""benchmarks/judge.py, as far as it judges nothing: what a record keeps, replaces and counts."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import judge


def row(task, run, status="wrong values", **more):
    return {"task": task, "run": run, "status": status, "seconds": 1.0, "summary": ""} | more


def empty():
    return {part: [] for part in judge._PARTS}


def test_what_has_no_row_comes_first_and_what_has_one_of_this_commit_is_left_out():
    runs = [{"commit": "old"}, {"commit": "new"}, {"commit": "new"}]
    asked = [task for task in judge.tasks([], 3, []) if task.part in ("collection", "same")]
    known, done, *missing = [task for task in asked if task.part == "collection"][:4]
    rows = empty()
    earlier = [task for task in asked if task not in (done, *missing)]
    rows["collection"] = [*(row(task.name, 0) for task in earlier), row(done.name, 1)]
    rows["same"] = [row(task.name, 1) for task in asked if task.part == "same"][:2]
    left = judge._left(asked, rows, runs)
    assert [task.name for task in left[:2]] == [task.name for task in missing]
    assert known in left
    assert done not in left
    rows["collection"][9]["seconds"] = 9.0
    of_files = [task.name for task in judge._left(asked, rows, runs) if task.part == "collection"]
    assert of_files[2] == rows["collection"][9]["task"]  # the longest, then a short one
    assert sum(task.part == "same" for task in left) == 1


def test_a_row_takes_the_place_of_one_of_an_earlier_run():
    rows = [row("a", 0), row("b", 0), row("a", 1)]
    judge._replace(rows, row("a", 1, status="cheating"))
    assert [(it["task"], it["run"], it["status"]) for it in rows] == [
        ("b", 0, "wrong values"),
        ("a", 1, "wrong values"),
        ("a", 1, "cheating"),
    ]


def test_the_record_of_the_judge_is_whole(tmp_path):
    runs, rows = judge._earlier(judge.RESULTS)
    assert all(row["run"] < len(runs) - 1 for part in rows.values() for row in part)
    names = [row["task"] for row in rows["collection"]]
    assert len(set(names)) == len(names) > 100
    judge._write(tmp_path / "record.json", {"runs": runs}, rows, [])
    found = json.loads((tmp_path / "record.json").read_text())["summary"]
    assert found["attacks"] + found["honest"] < len(names)
    assert sum(found["rows by commit"].values()) == sum(map(len, rows.values()))
