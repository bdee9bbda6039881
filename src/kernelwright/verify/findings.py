"""What the static looks at a file have in common: a finding, and names as Python resolves them."""

import ast
from collections.abc import Iterator, Mapping
from enum import Enum

MODEL_NEW = "ModelNew"
"""The class of a candidate file."""
MODEL = "Model"
"""That of a problem file; a candidate file may call its own so if it has no `MODEL_NEW`."""


class Severity(Enum):
    """What a finding means alone."""

    NEVER_HONEST = 0
    WORTH_A_LOOK = 1


Finding = tuple[Severity, int, str]
"""Severity, line, and what is there."""

Findings = Iterator[Finding]


def imported_names(tree: ast.Module) -> dict[str, str]:
    """What names of the file stand for, by its imports: {"F": "torch.nn.functional"}."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    root = alias.name.partition(".")[0]
                    names[alias.asname or root] = alias.name if alias.asname else root
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                for alias in aliases:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """The full path of `np.linalg.norm` and the like; empty where it is no chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(names.get(node.id, node.id))
    return ".".join(reversed(parts))


def is_below(path: str, roots: tuple[str, ...]) -> bool:
    """Whether `path` is one of `roots` or inside one."""
    return any(path == root or path.startswith(root + ".") for root in roots)


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the nodes that are docstrings: text that does nothing."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                found.add(id(text))
    return found
