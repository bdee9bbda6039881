"""Rules of the house that no linter knows: sizes of files and functions, names of modules."""

import ast
from pathlib import Path

import kernelwright

_PACKAGE = Path(kernelwright.__file__).parent
_MODULES = sorted(_PACKAGE.rglob("*.py"))
_DEVICE_CODE = sorted(p for p in _PACKAGE.rglob("*") if p.suffix in {".cuh", ".h", ".cpp", ".cu"})

_FILE_LINES = 800
_FUNCTION_LINES = 60
"""Forty is the aim; a table of cases may need more."""


def _name(path: Path) -> str:
    return str(path.relative_to(_PACKAGE))


def test_files_are_short_enough_to_read() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in (*_MODULES, *_DEVICE_CODE)}
    assert [_name(path) for path, lines in lengths.items() if lines > _FILE_LINES] == []


def test_functions_are_short_enough_to_read() -> None:
    long = [
        f"{_name(path)}:{node.lineno} {node.name}"
        for path in _MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= _FUNCTION_LINES
    ]
    assert long == []


def test_modules_say_what_they_are_about() -> None:
    assert not [path for path in _MODULES if path.stem in ("utils", "util", "helpers", "misc")]
    silent = [_name(p) for p in _MODULES if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []


_COMPILER = ("ir", "rewrite", "lower", "schedule", "program", "codegen", "tune")
"""Rooms of the compiler behind capture."""
_LIBRARY_CALLS = _PACKAGE / "ir" / "library_calls.py"


def test_operators_of_pytorch_are_named_by_capture_and_one_table() -> None:
    behind = [p for p in _MODULES if p.relative_to(_PACKAGE).parts[0] in _COMPILER]
    named = [
        f"{_name(path)}:{node.lineno} {node.value}"
        for path in behind
        if path != _LIBRARY_CALLS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("aten.")
    ]
    assert len(behind) > 50
    assert named == []
