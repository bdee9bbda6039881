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


_CLASS_LINES = 200


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


def test_classes_are_short_enough_to_read() -> None:
    long = {
        f"{_name(path)}: {node.name}"
        for path in _MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= _CLASS_LINES
    }
    assert long == set()


def test_modules_say_what_they_are_about() -> None:
    assert not [path for path in _MODULES if path.stem in ("utils", "util", "helpers", "misc")]
    silent = [_name(p) for p in _MODULES if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []


_COMPILER = ("ir", "rewrite", "lower", "schedule", "program", "codegen", "tune")
"""Rooms of the compiler behind capture."""
_LIBRARY_CALLS = _PACKAGE / "ir" / "library_calls.py"


def test_docstrings_begin_with_their_noun() -> None:
    found = [
        f"{_name(path)}:{node.lineno}"
        for path in _MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if str(node.value.value).startswith(("Of ", "The same"))
    ]
    assert found == []


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


_TABLES = ("schedule/families/", "codegen/families/", "ir/")
_ANCHORS = ("RowProgram", "PooledSource")
"""Records that only kernels have; other anchors are kinds of nodes as well."""


def test_only_the_tables_know_families_of_kernels() -> None:
    """Everything else looks a kernel's family up: there is no dispatch on what kernels are."""
    asking = [
        f"{_name(path)}:{node.lineno}"
        for path in _MODULES
        if not _name(path).startswith(_TABLES)
        for node in ast.walk(ast.parse(path.read_text()))
        if _asks_for_family(node)
    ]
    assert asking == []


def _asks_for_family(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            return any(_is_named(it, "family") for it in sides) and any(map(_is_text, sides))
        case ast.Match(subject=subject):
            return _is_named(subject, "family") or _is_named(subject, "anchor")
        case ast.MatchClass(cls=ast.Name(id=name)):
            return name in _ANCHORS
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kind]):
            names = {it.id for it in ast.walk(kind) if isinstance(it, ast.Name)}
            of_kernel = _is_named(subject, "anchor") and "kernel" in ast.unparse(subject)
            return of_kernel or not names.isdisjoint((*_ANCHORS, "Kernel"))
    return False


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _is_text(node: ast.AST) -> bool:
    constants = [it for it in ast.walk(node) if isinstance(it, ast.Constant)]
    return any(isinstance(it.value, str) for it in constants)


def test_a_question_for_the_family_is_seen() -> None:
    questions = (
        'kernel.family == "rows"',
        'kernel.family in ("rows", "scan")',
        "isinstance(kernel.anchor, Contract)",
        "isinstance(anchor, RowProgram)",
    )
    for question in questions:
        assert any(map(_asks_for_family, ast.walk(ast.parse(question)))), question
    assert not any(map(_asks_for_family, ast.walk(ast.parse("one.family == other.family"))))


def test_families_have_files_of_their_names() -> None:
    from kernelwright.codegen.families import WRITERS
    from kernelwright.schedule.families import FAMILIES

    assert FAMILIES.keys() == WRITERS.keys()
    for name in FAMILIES:
        assert (_PACKAGE / "schedule" / "families" / f"{name}.py").is_file()
        assert (_PACKAGE / "codegen" / "families" / f"{name}.py").is_file()
        assert list((_PACKAGE / "kernels" / name).glob("*.cuh"))
