"""What reading a candidate's file shows before anything runs: by `ast`, never by text patterns."""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.verify.verdict import Check, Outcome, Status

_STANDARD_ROOTS = frozenset({"torch", "numpy", "math", "triton"})
"""What candidates in KernelBench's format import; more is worth a look."""


def read_candidate(path: Path, problem_source: str) -> tuple[Check, ...]:
    """First checks of the candidate file against the problem's text.

    A file that cannot be parsed or has no `ModelNew` fails as BUILD_FAILED; all else is a warning.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, ValueError, OSError) as error:
        line = getattr(error, "lineno", None) or 1
        return (_failure(f"{path.name}:{line}: {error}"),)
    model = _find_class(tree, "ModelNew")
    if model is None:
        if "ModelNew" in _bound_names(tree):
            return ()
        return (_failure(f"{path.name} defines no class `ModelNew`"),)
    reference = _find_class(ast.parse(problem_source), "Model")
    findings = [warning for look in _LOOKS for warning in look(tree, model, reference)]
    return tuple(
        Check(name="source", outcome=Outcome.WARNING, evidence=f"{path.name}:{line}: {text}")
        for line, text in sorted(findings)
    )


def _failure(evidence: str) -> Check:
    return Check(
        name="source", outcome=Outcome.FAILED, evidence=evidence, status=Status.BUILD_FAILED
    )


def _find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return classes[-1] if classes else None


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that module-level assignments and imports bind."""
    names = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names


Warnings = Iterator[tuple[int, str]]


def _look_at_signatures(
    tree: ast.Module, model: ast.ClassDef, reference: ast.ClassDef | None
) -> Warnings:
    """`__init__` and `forward` take what the reference's take."""
    del tree
    for name in ("__init__", "forward"):
        expected, found = _method(reference, name), _method(model, name)
        if expected is None or found is None:
            continue
        should, is_ = _parameters(expected), _parameters(found)
        if should != is_:
            yield (
                found.lineno,
                f"`{name}` takes ({', '.join(is_)}), the reference's takes ({', '.join(should)})",
            )


def _method(model: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = model.body if model is not None else []
    methods = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return methods[-1] if methods else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    return names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _look_at_imports(
    tree: ast.Module, model: ast.ClassDef, reference: ast.ClassDef | None
) -> Warnings:
    """Imports beyond torch and the standard library do not travel with the file."""
    del model, reference
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                roots = [alias.name.partition(".")[0] for alias in aliases]
            case ast.ImportFrom(module=str(module)):
                roots = [module.partition(".")[0]]
            case _:
                continue
        for root in roots:
            if root not in _STANDARD_ROOTS and root not in sys.stdlib_module_names:
                yield node.lineno, f"imports `{root}`, which is neither torch nor standard"


def _look_for_fallbacks(
    tree: ast.Module, model: ast.ClassDef, reference: ast.ClassDef | None
) -> Warnings:
    """A `try` inside the model may hide a fallback to the reference."""
    del tree, reference
    for node in ast.walk(model):
        if isinstance(node, ast.Try):
            yield node.lineno, "`try` inside the model: a kernel that fails may go unnoticed"


_LOOKS: tuple[Callable[[ast.Module, ast.ClassDef, ast.ClassDef | None], Warnings], ...] = (
    _look_at_signatures,
    _look_at_imports,
    _look_for_fallbacks,
)
