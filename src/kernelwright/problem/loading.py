"""Read and check a problem file without executing it."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from kernelwright.problem.constants import find_constants
from kernelwright.problem.errors import (
    ModelNotModuleError,
    NoForwardError,
    NoInitInputsFunctionError,
    NoInputsFunctionError,
    NoModelError,
    ProblemFileError,
    ProblemSyntaxError,
)
from kernelwright.problem.record import Problem

_FUNCTIONS = {"get_inputs": NoInputsFunctionError, "get_init_inputs": NoInitInputsFunctionError}


def load_problem(path: str | Path) -> Problem:
    """The problem in the file at `path`, checked by its syntax alone.

    Raises ProblemFileError, ProblemSyntaxError, NoModelError, ModelNotModuleError, NoForwardError,
    NoInputsFunctionError or NoInitInputsFunctionError, each with the file and the line.
    """
    path = Path(path)
    return parse_problem(path, read_source(path))


def parse_problem(path: Path, source: str) -> Problem:
    """The problem with the text `source`; `path` is only what messages and line numbers name."""
    tree = _parse(path, source)
    bindings = dict(_bindings(tree.body))
    lines = {name: node.lineno for name, node in bindings.items() if name in _FUNCTIONS}
    if "Model" not in bindings:
        raise NoModelError(f"{path.name} has no class `Model`", location=f"{path}:1")
    for name, error in _FUNCTIONS.items():
        if name not in bindings:
            raise error(f"{path.name} has no function `{name}`", location=f"{path}:1")
    model = bindings["Model"]
    lines["Model"] = model.lineno
    if isinstance(model, ast.FunctionDef | ast.AsyncFunctionDef):
        raise ModelNotModuleError("`Model` is a function", location=f"{path}:{model.lineno}")
    if isinstance(model, ast.ClassDef):
        lines |= _forward_line(path, model, bindings)
    constants = {site.name: site.value for site in find_constants(tree)}
    return Problem(path=path, source=source, name=path.stem, constants=constants, lines=lines)


def read_source(path: Path) -> str:
    """The text of a Python file, as its coding line says; ProblemFileError where there is none."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ProblemFileError(f"{path} {what}", location=str(path))
    try:
        data = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ProblemFileError(f"{path} cannot be read: {error}", location=str(path)) from error


def _parse(path: Path, source: str) -> ast.Module:
    try:
        return ast.parse(source, filename=str(path))
    except SyntaxError as error:
        location = f"{path}:{error.lineno or 1}"
        raise ProblemSyntaxError(f"{path.name}: {error.msg}", location=location) from error
    except (ValueError, RecursionError) as error:
        raise ProblemSyntaxError(f"{path.name}: {error}", location=f"{path}:1") from error


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names that the statements bind at module level, the last binding of a name last."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, statement
            case ast.AsyncFunctionDef(name=name):
                yield name, statement
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    yield alias.asname or alias.name.partition(".")[0], statement
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield target.id, statement
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name, statement
            case ast.If(body=then, orelse=otherwise):
                yield from _bindings([*then, *otherwise])
            case ast.With(body=inner):
                yield from _bindings(inner)
            case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=final):
                handled = [line for handler in handlers for line in handler.body]
                yield from _bindings([*inner, *handled, *otherwise, *final])


def _forward_line(path: Path, model: ast.ClassDef, bindings: dict[str, ast.stmt]) -> dict[str, int]:
    """{"forward": line}, {} where a base class from elsewhere may define it."""
    location = f"{path}:{model.lineno}"
    if not model.bases:
        raise ModelNotModuleError("`Model` does not derive from nn.Module", location=location)
    pending, elsewhere = [model], False
    while pending:
        cls = pending.pop(0)
        for name, statement in _bindings(cls.body):
            if name == "forward":
                return {"forward": statement.lineno}
        for base in cls.bases:
            local = bindings.get(base.id) if isinstance(base, ast.Name) else None
            if isinstance(local, ast.ClassDef) and local is not cls:
                pending.append(local)
            else:
                elsewhere |= not ast.unparse(base).endswith("Module")
    if elsewhere:
        return {}
    raise NoForwardError("`Model` has no method `forward`", location=location)
