"""What reading a candidate's file shows before anything runs: syntax trees and tokens.

Findings are evidence with a line number. Alone they condemn only what is never honest: replacing
functions of torch, looking at the judge's frames, talking to the network. Everything else informs.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.verify.findings import MODEL, MODEL_NEW, Findings, Severity
from kernelwright.verify.static.cuda import look_at_cuda
from kernelwright.verify.static.python import look_at_python
from kernelwright.verify.static.shape import look_at_shape
from kernelwright.verify.verdict import Check, Outcome, Status

SOURCE = "source"
"""Name of the checks that come from reading."""


def read_candidate(path: Path, problem_source: str) -> tuple[Check, ...]:
    """First checks of the candidate file against the problem's text.

    A file that cannot be parsed or has no module's class fails as BUILD_FAILED, one that does what
    no honest file does as CHEATING; all else is a warning.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError, OSError) as error:
        line = getattr(error, "lineno", None) or 1
        return (_failure(f"{path.name}:{line}: {error}"),)
    names = _bound_names(tree)
    if not names & {MODEL_NEW, MODEL}:
        return (_failure(f"{path.name} defines no class `{MODEL_NEW}`, nor `{MODEL}`"),)
    note = () if MODEL_NEW in names else (_by_other_name(path),)
    findings = [it for look in _LOOKS for it in look(tree, problem_source)]
    ordered = sorted(set(findings), key=lambda it: (it[0].value, it[1]))
    found = (_check(path, line, text, severity) for severity, line, text in ordered)
    return (*note, *found)


_LOOKS: tuple[Callable[[ast.Module, str], Findings], ...] = (
    look_at_shape,
    look_at_python,
    look_at_cuda,
)


def _by_other_name(path: Path) -> Check:
    evidence = f"{path.name} has no `{MODEL_NEW}`: its `{MODEL}` was judged"
    return Check(name=SOURCE, outcome=Outcome.WARNING, evidence=evidence)


def _failure(evidence: str) -> Check:
    return Check(name=SOURCE, outcome=Outcome.FAILED, evidence=evidence, status=Status.BUILD_FAILED)


def _check(path: Path, line: int, text: str, severity: Severity) -> Check:
    evidence = f"{path.name}:{line}: {text}"
    match severity:
        case Severity.NEVER_HONEST:
            return Check(
                name=SOURCE, outcome=Outcome.FAILED, evidence=evidence, status=Status.CHEATING
            )
        case Severity.WORTH_A_LOOK:
            evidence = f"{evidence} (worth a look; no fault by itself)"
            return Check(name=SOURCE, outcome=Outcome.WARNING, evidence=evidence)


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that statements at module level bind."""
    return set(_names(tree.body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.If(body=then, orelse=otherwise) | ast.Try(body=then, orelse=otherwise):
                yield from _names([*then, *otherwise])
            case ast.With(body=inner):
                yield from _names(inner)
