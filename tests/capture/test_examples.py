"""The graphs of the five examples, as text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.capture import capture
from kernelwright.problem import load_problem

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_graph(path: Path, golden: Callable[[str, str], None]) -> None:
    golden(str(capture(load_problem(path))), f"{path.stem}.txt")
