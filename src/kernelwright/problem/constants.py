"""Module-level integer constants of a source text: found by syntax, never by running it."""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LARGEST = 2**63 - 1

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One constant and the expression in the text that gives it."""

    name: str
    """As in `Problem.constants`."""
    value: int
    node: ast.expr
    """The expression; its positions say what a resize replaces."""


def find_constants(tree: ast.Module) -> tuple[Site, ...]:
    """Integers assigned once, at module level, from literals alone.

    `M = 2048 * 2`, `height, width = 32, 64` and each element of `shape = (3, 5)` count;
    `K = N // 2` does not: it follows N by itself.
    """
    sites: list[Site] = []
    targets: Counter[str] = Counter()
    for statement in tree.body:
        for name, value in _assignments(statement):
            targets[name] += 1
            sites.extend(_sites(name, value))
    return tuple(site for site in sites if targets[site.name.partition("[")[0]] == 1)


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(
            targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values) | ast.List(elts=values)
        ) if len(names) == len(values):
            for target, value in zip(names, values, strict=True):
                if isinstance(target, ast.Name):
                    yield target.id, value


def _sites(name: str, value: ast.expr) -> Iterator[Site]:
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for index, element in enumerate(elements):
                yield from _sites(f"{name}[{index}]", element)
        case _:
            number = _evaluate(value)
            if number is not None:
                yield Site(name=name, value=number, node=value)


def _evaluate(node: ast.expr) -> int | None:
    """The value of an expression of integer literals, None for anything else or too large."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = _evaluate(operand)
            return None if positive is None else -positive
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _evaluate(left), _evaluate(right)
            if a is None or b is None:
                return None
            return _apply(op, a, b)
    return None


def _apply(op: ast.operator, a: int, b: int) -> int | None:
    if isinstance(op, ast.Pow | ast.LShift) and not 0 <= b < 64:
        return None
    try:
        result = _BINARY[type(op)](a, b)
    except (ZeroDivisionError, ValueError):
        return None
    return result if abs(result) <= _LARGEST else None
