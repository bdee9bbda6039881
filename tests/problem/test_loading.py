"""Problem files that are fine, and every mistake that can be seen without running them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.errors import ExitCode
from kernelwright.problem import Problem, errors, load_problem

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))

GOOD = """\
import torch
from torch import nn

M = 16

class Model(nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.rand(M)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Problem]:
    def load(source: str) -> Problem:
        path = tmp_path / "model.py"
        path.write_bytes(source.encode())
        return load_problem(path)

    return load


def test_a_good_file(load: Callable[[str], Problem]) -> None:
    problem = load(GOOD)
    assert problem.name == "model"
    assert problem.source == GOOD
    assert problem.constants == {"M": 16}
    assert problem.lines == {"Model": 6, "forward": 7, "get_inputs": 10, "get_init_inputs": 13}
    assert problem.location("forward").endswith("model.py:7")


def test_the_five_examples() -> None:
    problems = {problem.name: problem for problem in map(load_problem, EXAMPLES)}
    assert set(problems) == {
        *("diag_matmul", "scalar_mul", "matmul", "matmul_transposed_both", "linear_relu_div"),
    }
    assert problems["matmul"].constants == {"M": 2048, "K": 8192, "N": 4096}


def test_constants_are_those_made_of_literals_once(load: Callable[[str], Problem]) -> None:
    text = """
A = 2048 * 2
B: int = -(1 << 4)
C, D = 3, 5
SHAPE = (7, (8, 9))
HALF = A // 2
RATE = 0.5
FLAG = True
TWICE = 1
TWICE = 2
HUGE = 9 ** 9 ** 9
for E in range(3):
    pass
"""
    assert load(text + GOOD).constants == {
        **{"A": 4096, "B": -16, "C": 3, "D": 5, "SHAPE[0]": 7, "SHAPE[1][0]": 8, "SHAPE[1][1]": 9},
        "M": 16,
    }


@pytest.mark.parametrize(
    ("old", "new", "error", "line"),
    [
        ("M = 16", "M = = 16", errors.ProblemSyntaxError, 4),
        ("M = 16", "M = '\0'", errors.ProblemSyntaxError, 1),
        ("class Model(", "class Other(", errors.NoModelError, 1),
        ("def get_inputs", "def inputs", errors.NoInputsFunctionError, 1),
        ("def get_init_inputs", "def init", errors.NoInitInputsFunctionError, 1),
        ("class Model(nn.Module):", "class Model:", errors.ModelNotModuleError, 6),
        ("def forward", "def backward", errors.NoForwardError, 6),
    ],
)
def test_mistakes(
    load: Callable[[str], Problem],
    old: str,
    new: str,
    error: type[errors.ProblemError],
    line: int,
) -> None:
    with pytest.raises(error) as caught:
        load(GOOD.replace(old, new))
    assert caught.value.location is not None
    assert caught.value.location.endswith(f"model.py:{line}")
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.next_step


def test_a_function_is_no_model(load: Callable[[str], Problem]) -> None:
    with pytest.raises(errors.ModelNotModuleError, match="function"):
        load(GOOD.replace("class Model(nn.Module):", "def Model():"))


def test_forward_may_be_inherited(load: Callable[[str], Problem]) -> None:
    base = GOOD.replace("class Model(nn.Module)", "class Base(nn.Module)")
    assert load(base + "\nclass Model(Base):\n    pass\n").lines["forward"] == 7
    elsewhere = base + "\nclass Model(nn.Linear):\n    pass\n"
    assert "forward" not in load(elsewhere).lines


def test_definitions_may_be_conditional(load: Callable[[str], Problem]) -> None:
    text = GOOD.replace("def get_init_inputs():\n    return []", "")
    assert load(text + "try:\n    from a import get_init_inputs\nexcept ImportError:\n    raise\n")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(errors.ProblemFileError, match="does not exist"):
        load_problem(tmp_path / "none.py")
    with pytest.raises(errors.ProblemFileError, match="is a folder"):
        load_problem(tmp_path)


def test_text_that_cannot_be_decoded(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(errors.ProblemFileError, match="cannot be read"):
        load_problem(path)
