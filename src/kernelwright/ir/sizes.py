"""Products and sums of sizes, symbolic ones too."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from kernelwright.ir.types import Dim

ONE = Dim.static(1)


def product(dims: Sequence[Dim]) -> Dim:
    """The size of several dimensions taken as one."""
    hint = prod(dim.hint for dim in dims)
    constant = prod(dim.hint for dim in dims if dim.is_static)
    texts = [dim.text for dim in dims if not dim.is_static]
    if not texts:
        return Dim.static(hint)
    if constant != 1:
        texts.insert(0, str(constant))
    return Dim("*".join(text if _is_atom(text) else f"({text})" for text in texts), hint)


def total(dims: Sequence[Dim]) -> Dim:
    """The size of places side by side."""
    hint = sum(dim.hint for dim in dims)
    constant = sum(dim.hint for dim in dims if dim.is_static)
    counts = Counter(dim.text for dim in dims if not dim.is_static)
    if not counts:
        return Dim.static(hint)
    texts = [text if count == 1 else _times(count, text) for text, count in counts.items()]
    if constant:
        texts.append(str(constant))
    return Dim(" + ".join(texts), hint)


def _times(count: int, text: str) -> str:
    return f"{count}*{text}" if _is_atom(text) else f"{count}*({text})"


def are_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if the products are known to be the same at every call."""
    return _factors(a) == _factors(b)


def _factors(dims: Sequence[Dim]) -> tuple[int, Counter[str]]:
    """The constant and the symbolic factors of a product."""
    constant, symbolic = 1, Counter[str]()
    for factor in (part for dim in dims for part in _split(ast.parse(dim.text, mode="eval").body)):
        match factor:
            case ast.Constant(int() as value):
                constant *= value
            case _:
                symbolic[ast.unparse(factor)] += 1
    return constant, symbolic


def _split(size: ast.expr) -> Iterator[ast.expr]:
    match size:
        case ast.BinOp(left, ast.Mult(), right):
            yield from _split(left)
            yield from _split(right)
        case _:
            yield size


def _is_atom(text: str) -> bool:
    return text.isidentifier() or text.isdigit()


def regroup(
    a: Sequence[Dim], b: Sequence[Dim]
) -> list[tuple[tuple[Dim, ...], tuple[Dim, ...]]] | None:
    """Two shapes of one number of elements in row-major order, cut where both have a boundary.

    Each pair holds neighbouring dimensions of `a` and of `b` with the same product, as few as can
    be. None where symbolic sizes leave that open.
    """
    pairs: list[tuple[tuple[Dim, ...], tuple[Dim, ...]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        to_i, to_j = i, j
        if i < len(a) and a[i] == ONE and b[j : j + 1] != (ONE,):
            to_i += 1
        elif j < len(b) and b[j] == ONE and a[i : i + 1] != (ONE,):
            to_j += 1
        else:
            to_i, to_j = i + 1, j + 1
            while not are_equal(a[i:to_i], b[j:to_j]):
                mine, other = (prod(d.hint for d in dims) for dims in (a[i:to_i], b[j:to_j]))
                if mine < other and to_i < len(a):
                    to_i += 1
                elif other < mine and to_j < len(b):
                    to_j += 1
                else:
                    return None
        pairs.append((tuple(a[i:to_i]), tuple(b[j:to_j])))
        i, j = to_i, to_j
    return pairs
