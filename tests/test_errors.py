"""Every error in every room says what is wrong, where, and what to do."""

import importlib
import json
import pickle
import pkgutil
from pathlib import Path

import pytest

import kernelwright
from kernelwright.errors import (
    CompileError,
    ExitCode,
    KernelwrightError,
    UsageError,
    all_errors,
    render_errors_table,
)


@pytest.fixture(scope="module")
def errors() -> list[type[KernelwrightError]]:
    """All error classes of the package, which takes importing all of it."""
    for module in pkgutil.walk_packages(kernelwright.__path__, "kernelwright."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [error for error in all_errors() if error.__module__.startswith("kernelwright.")]


def test_every_class_has_an_exit_code_a_meaning_and_a_next_step(
    errors: list[type[KernelwrightError]],
) -> None:
    assert {CompileError, UsageError} <= set(errors)
    for error in errors:
        assert isinstance(error.exit_code, ExitCode), error
        assert error.exit_code != ExitCode.VERIFIED, error
        assert error.__doc__ and "__doc__" in vars(error), f"{error} needs a sentence"
        assert error.next_step.endswith("."), f"{error.__name__}: {error.next_step!r}"
        assert "`" not in error.__name__


def test_names_are_unique(errors: list[type[KernelwrightError]]) -> None:
    names = [error.__name__ for error in set(errors)]
    assert len(names) == len(set(names))


def test_table_has_a_row_for_each(errors: list[type[KernelwrightError]]) -> None:
    rows = render_errors_table().splitlines()
    assert rows[0].count("|") == rows[1].count("|") == 5
    for error in errors:
        matching = [row for row in rows if row.startswith(f"| `{error.__name__}` |")]
        assert len(matching) == 1
        assert f"| {int(error.exit_code)} |" in matching[0]
        assert error.next_step in matching[0]


def test_text_has_message_place_and_next_step() -> None:
    error = UsageError("no such file: x.py", location="x.py:3", next_step="Name another.")
    assert str(error) == "no such file: x.py\n  at x.py:3\n  next: Name another."
    assert "  at " not in str(UsageError("no such command"))


def test_json_has_all_fields() -> None:
    error = CompileError("nvcc: bad", location="a.cu:3", log_path=Path("/tmp/log"))
    assert json.loads(json.dumps(error.to_json())) == {
        "error": "CompileError",
        "message": "nvcc: bad",
        "location": "a.cu:3",
        "next_step": CompileError.next_step,
        "exit_code": 3,
        "log_path": "/tmp/log",
    }


def test_errors_cross_process_boundaries() -> None:
    error = CompileError("bad", location="a:1", next_step="Do.", log_path=Path("/x"))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.log_path) == (str(error), Path("/x"))


def test_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "VERIFIED": 0,
        "WRONG": 1,
        "NOT_FASTER": 2,
        "DOES_NOT_BUILD": 3,
        "UNSUPPORTED": 4,
        "USAGE": 64,
    }
