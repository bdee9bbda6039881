"""`kernelwright suite` and `kernelwright report` from the command line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright import cli
from kernelwright.errors import ExitCode
from kernelwright.suite import command
from kernelwright.suite.journal import read_journal
from kernelwright.suite.pool import LocalPool, Watcher

from .conftest import STAND_IN, row_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Call the program in an empty folder, with stand-ins for the processes of problems."""

    def pool(cards: list[str], slots: int, watcher: Watcher) -> LocalPool:
        return LocalPool(cards, slots, watcher, command=STAND_IN)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "LocalPool", pool)
    monkeypatch.setattr(command, "build_shared", lambda: None)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["kernelwright", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


def write(path: Path, words: str, **changes: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"{path.parent.name}/{path.stem}"
    path.write_text(f"{words}\n{json.dumps(row_of(name, **changes).to_json())}")


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two problems whose results are known, and one that dies."""
    folder = tmp_path / "problems"
    write(folder / "level1" / "1_a.py", "answer")
    write(folder / "level1" / "2_b.py", "answer")
    write(folder / "level2" / "1_c.py", "segfault")
    tasks_of = command.tasks_of
    monkeypatch.setattr(
        command,
        "tasks_of",
        # The stand-in's rows have keys of their own.
        lambda *words: [replace(it, key=f"key of {it.problem}") for it in tasks_of(*words)],
    )
    return folder


def test_a_suite_from_start_to_report(run: Run, problems: Path, tmp_path: Path) -> None:
    code, out, err = run("suite", problems, "--target", "cpu", "--slots", 2, "--commit", "abc")
    assert code == ExitCode.WRONG
    assert "2 of 3 verified" in out
    assert "1 process died" in out
    assert err.count("level1/") == 2
    assert "[3/3]" in err
    assert "SIGSEGV" in err
    latest = tmp_path / "runs" / "latest"
    (header,) = read_journal(latest).headers
    assert header["provenance"]["commit"] == "abc"
    assert header["provenance"]["command"].startswith("kernelwright suite problems --target")
    assert str(tmp_path) not in json.dumps(header["provenance"])

    code, out, _ = run("report", latest)
    assert code == ExitCode.VERIFIED
    assert "level2/1_c" in (latest / "report.html").read_text()
    run("report", latest, "--markdown", "-o", tmp_path / "x" / "run.md", "--against", latest)
    assert "| level1/1_a |" in (tmp_path / "x" / "run.md").read_text()
    run("report", latest, "--csv")
    assert (latest / "report.csv").read_text().count("\n") == 4


def test_a_suite_as_json_has_a_line_for_each_problem(run: Run, problems: Path) -> None:
    words = ("suite", problems, "--target", "cpu", "--json", "--run", "mine")
    code, out, _ = run(*words, "--select", "level1/*")
    *rows, last = [json.loads(line) for line in out.splitlines()]
    assert code == ExitCode.VERIFIED
    assert {row["problem"] for row in rows} == {"level1/1_a", "level1/2_b"}
    assert last["summary"]["levels"][0]["verified"] == 2
    _, out, err = run(*words)
    assert len(out.splitlines()) == 4
    assert "[3/3]" in err
    assert "level1" not in err  # they were done already


def test_a_suite_begins_with_what_took_longest_in_the_one_before(
    run: Run, problems: Path, tmp_path: Path
) -> None:
    seconds = {"level1/1_a": {"verify": 1.0}, "level1/2_b": {"verify": 2.0}}
    rows = [{"problem": name, "seconds": taken} for name, taken in seconds.items()]
    (tmp_path / "old.json").write_text(json.dumps({"rows": rows}))
    words = ("suite", problems, "--target", "cpu", "--slots", 1, "--select", "level1/*")
    for like, names in (("old.json", ["level1/2_b", "level1/1_a"]), ("nowhere", [])):
        code, _, err = run(*words, "--like", like, "--run", f"like-{like}")
        begun = [word for line in err.splitlines() for word in line.split() if word in seconds]
        assert begun == names
        assert code == (ExitCode.VERIFIED if names else ExitCode.USAGE)


def test_what_cannot_be_begun_is_a_usage_error(run: Run, problems: Path, tmp_path: Path) -> None:
    base = ("suite", problems, "--target", "cpu")
    for words, message in (
        (("--baselines", "eager,tpu"), "tpu"),
        (("--effort", "heroic"), "heroic"),
        (("--shard", "3/2"), "3/2"),
        (("--candidates", tmp_path / "nowhere"), "nowhere"),
        (("--select", "nothing"), "no problem files"),
    ):
        code, _, err = run(*base, *words)
        assert code == ExitCode.USAGE
        assert message in err
    assert run("suite", tmp_path / "nowhere")[0] == ExitCode.USAGE
    assert run("report", tmp_path / "nowhere")[0] == ExitCode.USAGE
    assert run("report", tmp_path, "--csv", "--markdown")[0] == ExitCode.USAGE
    run(*base, "--run", "mine")
    code, _, err = run(*base, "--run", "mine", "--seeds", 2)
    assert code == ExitCode.USAGE
    assert "other settings" in err


def test_too_many_problems_at_a_time_are_told(
    run: Run, problems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.env, "usable_cores", lambda: 4)
    words = ("suite", problems, "--target", "cpu", "--commit", "abc", "--slots")
    usual = command.slots_per_card(1)
    _, _, err = run(*words, 5)
    assert "5 problems at a time on 4 cores" in err and f"{usual} is usual here" in err
    _, _, err = run(*words, usual)
    assert "wait for each other" not in err
