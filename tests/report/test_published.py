"""benchmarks/suite_results.py: a run becomes what is published, without folders of its machine."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.report.summary import summarise
from kernelwright.suite.journal import FILE
from kernelwright.suite.reading import read_run

from .synthetic import write_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kernelbench_groups
import suite_results

PAGE = f"# Title\n\n{suite_results.BEGIN}\nold\n{suite_results.END}\n\nRest\n"
NAVIGATION = "nav:\n  - How it works:\n      - measured/index.md\n      - trust.md\n"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    run = write_run(tmp_path / "run", seed=3, levels={"level1": 4, "level2": 3})
    journal = run / FILE
    text = journal.read_text().replace("x.py:12", "/tmp/kw/.kb/KernelBench/level1/1_x.py:12")
    journal.write_text(text)
    (tmp_path / "benchmarks.md").write_text(PAGE)
    (tmp_path / "mkdocs.yml").write_text(NAVIGATION)
    return run


def publish(run: Path) -> int:
    here = run.parent
    output = ["--output", str(here / "results"), "--page", str(here / "benchmarks.md")]
    return suite_results.main([str(run), *output, "--navigation", str(here / "mkdocs.yml")])


def test_everything_is_written_once(written: Path) -> None:
    for _ in range(2):
        assert publish(written) == 0
    here = written.parent
    recorded = json.loads((here / "results" / "kernelbench.json").read_text())
    assert len(recorded["rows"]) == recorded["summary"]["levels"][0]["problems"] == 7
    page = (here / "results" / "kernelbench.md").read_text()
    shown = (here / "benchmarks.md").read_text()
    summary = summarise(read_run(written).rows)
    table = "\n".join(suite_results.level_table(summary))
    assert table in page and table in shown
    assert "old" not in shown and shown.startswith("# Title") and shown.endswith("Rest\n")
    navigation = (here / "mkdocs.yml").read_text()
    assert navigation.count("      - results/kernelbench.md\n") == 1
    assert (here / "results" / "kernelbench_report.html").read_text().startswith("<!doctype html>")


def test_the_kernels_of_each_watched_problem_are_published(written: Path) -> None:
    assert publish(written) == 0
    recorded = json.loads((written.parent / "results" / "kernelbench.json").read_text())
    spent = recorded["where_the_time_goes"]
    assert set(spent) == {row["problem"] for row in recorded["rows"] if row["verified"]}
    for row in recorded["rows"]:
        if row["verified"]:
            kernels = spent[row["problem"]]["kernels"]
            assert {it["name"] for it in kernels} >= set(row["kernels"])
            whole = sum(it["ms"] for it in kernels)
            assert whole == pytest.approx(spent[row["problem"]]["watched_ms"], rel=1e-3)


def test_a_run_that_went_on_elsewhere_tells_the_seconds_of_each_machine(tmp_path: Path) -> None:
    def begun(minute: int, cards: int) -> dict[str, object]:
        facts = {"cards": ["NVIDIA H200"] * cards, "cores": 16 * cards}
        return {"event": "run", "provenance": {"date": f"2026-01-01T00:{minute:02}:00", **facts}}

    def done(minute: int) -> dict[str, object]:
        return {"event": "done", "date": f"2026-01-01T00:{minute:02}:00"}

    lines = [begun(0, 2), done(2), begun(10, 4), done(11), begun(20, 2), done(21), done(23)]
    (tmp_path / FILE).write_text("\n".join(map(json.dumps, lines)))
    assert suite_results.wall_seconds(tmp_path / FILE) == {
        "2 x NVIDIA H200 and 32 cores": 5 * 60.0,
        "4 x NVIDIA H200 and 64 cores": 60.0,
    }


def test_groups_and_their_tables_are_those_of_the_published_run() -> None:
    run = json.loads(kernelbench_groups.RUN.read_text())
    grouped = json.loads(kernelbench_groups.GROUPED.read_text())
    page = kernelbench_groups.PAGE.read_text()
    current = "run benchmarks/kernelbench_groups.py"
    assert grouped == kernelbench_groups.summed(run), current
    assert page == kernelbench_groups.with_tables(page, run), current


def test_groups_have_the_problems_and_the_means_of_the_suite_itself() -> None:
    run = json.loads(kernelbench_groups.RUN.read_text())
    groups = kernelbench_groups.summed(run)["groups"]
    names = {"all": "all", "level1": "level 1", "level2": "level 2", "level3": "level 3"}
    for found in run["summary"]["levels"]:
        sums = groups[names[found["name"]]]
        assert all(sums[word] == found[word] for word in ("problems", "verified", "algebraic"))
        means = [it["geomean"] for it in found["against"]]
        assert list(sums["geometric means"].values()) == pytest.approx(means, rel=1e-3)
    level3 = ("level 3, recurrent", "level 3, not recurrent")
    assert sum(groups[name]["problems"] for name in level3) == groups["level 3"]["problems"]


def row_of(problem: str, speedups: dict[str, float], **facts: object) -> dict[str, object]:
    """A row of a run as far as groups read it."""
    told = [{"baseline": name, "device": {"value": it}} for name, it in speedups.items()]
    level, _, _ = problem.partition("/")
    row = {"problem": problem, "level": level, "verified": True, "speedups": told, "algebraic": []}
    return {**row, "left_to_pytorch": [], "lost": {}, "share_of_floor": 0.5, **facts}


def test_a_group_counts_what_is_slower_and_what_is_near_its_floor() -> None:
    both = {"eager": 4.0, "torch.compile": 0.97}
    rows = [
        row_of("level1/1_a", both, share_of_floor=0.9),
        row_of("level1/2_b", {"eager": 1.0, "torch.compile": 4.0}, share_of_floor=0.7),
        row_of("level1/54_c", {"eager": 16.0}, share_of_floor=None, algebraic=["a rule"]),
        row_of("level1/55_d", both, verified=False),
    ]
    assert kernelbench_groups.sums(rows) == {
        "problems": 4,
        "verified": 3,
        "algebraic": 1,
        "left to PyTorch, at least in part": 0,
        "timed": {"eager": 3, "torch.compile": 2, "the better of both": 3},
        "geometric means": {
            "eager": 4.0,
            "torch.compile": pytest.approx((0.97 * 4) ** (1 / 2), abs=1e-4),
            "the better of both": pytest.approx((0.97 * 16) ** (1 / 3), abs=1e-4),
        },
        "within times the floor": {"1.15": 1, "1.5": 2},
        "slower": {"level1/1_a": 0.97},
    }
    groups = kernelbench_groups.GROUPS
    for name in ("level 1, matrix products", "level 1, convolutions"):
        assert len(list(filter(groups[name], rows))) == 2


def test_baselines_that_do_not_count_are_named_with_the_reason(written: Path) -> None:
    run = read_run(written)
    problem, *others = run.rows
    lost = replace(problem, lost={"torch.compile": "its results are less accurate than allowed"})
    page = suite_results.page(replace(run, rows=(lost, *others)), [], "kernelbench")
    assert f"* {problem.problem}, torch.compile: its results are less accurate" in page
    none = tuple(replace(row, lost={}) for row in run.rows)
    assert "do not count" not in suite_results.page(replace(run, rows=none), [], "kernelbench")


def test_what_the_judgements_waited_for_is_added_up(written: Path) -> None:
    run = read_run(written)
    assert "waited for" not in suite_results.page(run, [], "kernelbench")
    rows = tuple(
        replace(row, spent={"reference: run": 3.0, "card: memory": 1.0}) for row in run.rows
    )
    page = suite_results.page(replace(run, rows=rows), [], "kernelbench")
    assert f"| reference: run | {3 * len(rows)} | 75% |" in page


def test_no_folder_of_the_machine_is_published(written: Path) -> None:
    assert publish(written) == 0
    for path in (written.parent / "results").iterdir():
        assert not any(mark in path.read_text() for mark in suite_results.MACHINE), path


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("/tmp/kw/.kb/KernelBench/level3/9_x.py:12", "KernelBench/level3/9_x.py:12"),
        (
            'File "/opt/v/site-packages/torch/a.py", line 3',
            'File "site-packages/torch/a.py", line 3',
        ),
        ("at /tmp/kernelwright-suite-x/1_new.py:7 and /usr/a/b.so.", "at 1_new.py:7 and b.so."),
        ("no path", "no path"),
    ],
)
def test_paths_begin_where_everybody_knows(text: str, cut: str) -> None:
    assert suite_results.without_folders({"a": [text]}) == {"a": [cut]}
