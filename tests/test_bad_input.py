"""What an emitted file says to bad input: a Python exception that names it, before any launch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright.compiling import compile_problem, shrunk_for_emulator, write_candidate
from kernelwright.machine import H200
from kernelwright.problem import Budget, load_problem

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def raised(
    tmp_path_factory: pytest.TempPathFactory, run_script: Callable[..., Any]
) -> dict[str, list[str]]:
    """For each bad call, the exception's class and message."""
    folder = tmp_path_factory.mktemp("emitted")
    paths = []
    for name in ("linear_relu_div", "scalar_mul"):
        compiled = compile_problem(load_problem(ROOT / "examples" / f"{name}.py"), H200)
        paths.append(folder / f"{name}_new.py")
        write_candidate(shrunk_for_emulator(compiled, Budget()), paths[-1])
    seen: dict[str, list[str]] = run_script(ROOT / "tests/families/bad_input.py", *paths)
    return seen


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("no tensor", "InputError", ["x", "expected a torch.float32 tensor", "got list"]),
        ("dtype", "InputError", ["x", "expected dtype torch.float32, got torch.float64"]),
        ("rank", "InputError", ["x", "expected 2 dimensions", "(136,)"]),
        ("size", "InputError", ["x", "expected shape (any, 136)", "(136, 135)"]),
        ("gradient", "RuntimeError", ["x", "no backward", "torch.no_grad()"]),
        ("weight's dtype", "InputError", ["linear.weight", "got torch.float16"]),
        ("scalar", "InputError", ["scale", "expected a Python number", "Tensor"]),
        ("constructor", "ValueError", ["136", "264", "got [8, 8, 1.0]"]),
        ("device", "InputError", ["x", "one CUDA device", "cpu"]),
    ],
)
def test_bad_input_is_named(
    raised: dict[str, list[str]], call: str, error: str, words: list[str]
) -> None:
    kind, message = raised[call]
    assert kind == error
    for word in words:
        assert word in message


def test_nothing_was_launched_for_bad_input(raised: dict[str, list[str]]) -> None:
    assert raised["launches"] == ["", "0"]


def test_right_input_raises_nothing(raised: dict[str, list[str]]) -> None:
    assert raised["right"] == raised["right scalar"] == ["nothing", ""]
