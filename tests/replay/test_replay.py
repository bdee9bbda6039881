"""The replay itself: it sees a text that changed, and says what did."""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "scalar_mul.py"


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """`replay("--update")`: the exit code for a folder of one problem."""
    monkeypatch.syspath_prepend(str(HERE))
    problems = tmp_path / "problems"
    problems.mkdir()
    shutil.copy(EXAMPLE, problems)
    places = {"problems": problems, "record": tmp_path / "record.txt", "build": tmp_path / "build"}
    fixed = [word for name, path in places.items() for word in (f"--{name}", str(path))]
    script = importlib.import_module("replay")
    return lambda *words: script.main([*fixed, "--jobs", "1", *words])


def test_a_change_is_shown(
    replay: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay() == 1
    assert replay("--update") == 0
    assert replay() == 0
    assert "0 differ" in capsys.readouterr().out.splitlines()[-1]
    problem = tmp_path / "problems" / EXAMPLE.name
    problem.write_text(problem.read_text().replace("a * scale", "a * scale + 1"))
    assert replay() == 1
    shown = capsys.readouterr().out
    assert "==== scalar_mul: plan, never" in shown
    assert any(line.startswith("+") and "add" in line for line in shown.splitlines())
