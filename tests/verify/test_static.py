"""What reading a candidate shows."""

from pathlib import Path

import pytest

from kernelwright.verify.static import read_candidate
from kernelwright.verify.verdict import Outcome, Status

PROBLEM = """
class Model(nn.Module):
    def __init__(self, size, *, bias=True): ...
    def forward(self, x): ...
"""
GOOD = """
import math, torch, os.path
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, size, *, bias=True): ...
    def forward(self, x): ...
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("(self, x)", "(self, x, y)", 7, "`forward` takes (x, y), the reference's takes (x)"),
        ("*, bias=True", "*args", 6, "`__init__` takes (size, *args)"),
        ("import math", "import cupy", 2, "imports `cupy`"),
        ("...\n    def forward", "import pandas.io\n    def forward", 6, "imports `pandas`"),
        ("(self, x): ...", "(self, x):\n        try: ...\n        finally: ...", 8, "`try`"),
    ],
)
def test_what_is_worth_a_look(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(GOOD.replace(old, new))
    (check,) = read_candidate(path, PROBLEM)
    assert check.outcome is Outcome.WARNING
    assert check.evidence.startswith(f"new.py:{line}: ")
    assert words in check.evidence


def test_a_good_file_gives_no_findings(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(GOOD)
    assert read_candidate(path, PROBLEM) == ()
    path.write_text("from elsewhere import Fast as ModelNew")
    assert read_candidate(path, PROBLEM) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [("def f(:\n", "new.py:1"), ("x = 1\n", "defines no class `ModelNew`"), ("\0", "new.py")],
)
def test_what_cannot_be_a_candidate(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "new.py"
    path.write_text(text)
    (check,) = read_candidate(path, PROBLEM)
    assert check.outcome is Outcome.FAILED
    assert check.status is Status.BUILD_FAILED
    assert words in check.evidence
