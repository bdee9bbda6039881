"""Products, sums and quotients of sizes, symbolic ones too."""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from kernelwright.ir.types import Dim

ONE = Dim.static(1)

_Polynomial = Mapping[tuple[str, ...], int]
"""Coefficients by the symbols of a term, in order; what is no sum or product is a symbol."""


def product(dims: Sequence[Dim]) -> Dim:
    """The size of several dimensions taken as one."""
    hint = prod(dim.hint for dim in dims)
    constant = prod(dim.hint for dim in dims if dim.is_static)
    texts = [dim.text for dim in dims if not dim.is_static]
    if not texts:
        return Dim.static(hint)
    if constant != 1:
        texts.insert(0, str(constant))
    if len(texts) == 1:
        return Dim(texts[0], hint)
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


def pieces(whole: Dim, each: int) -> Dim:
    """How many pieces of so many make up a size, the last one being what is left."""
    if whole.is_static or each == 1:
        return whole if each == 1 else Dim.static(-(-whole.hint // each))
    return Dim(f"({whole.text} + {each - 1})//{each}", -(-whole.hint // each))


def _times(count: int, text: str) -> str:
    return f"{count}*{text}" if _is_atom(text) else f"{count}*({text})"


def are_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if the products are known to be the same at every call."""
    return _expanded(tuple(a)) == _expanded(tuple(b))


def quotient(whole: Dim, part: Dim) -> Dim | None:
    """The size that times `part` is `whole` at every call; None where that is not known."""
    if part.hint == 0 or whole.hint % part.hint:
        return None
    static = Dim.static(whole.hint // part.hint)
    if are_equal((part, static), (whole,)):
        return static
    divisor = _polynomial(part)
    if len(divisor) != 1:
        return None
    ((symbols, by),) = divisor.items()
    terms = {}
    for own, coefficient in _polynomial(whole).items():
        left = Counter(own)
        left.subtract(symbols)
        if coefficient % by or min(left.values(), default=0) < 0:
            return None
        terms[tuple(sorted(left.elements()))] = coefficient // by
    return Dim(" + ".join(map(_term, *zip(*terms.items(), strict=True))), static.hint)


def _term(symbols: tuple[str, ...], coefficient: int) -> str:
    factors = [text if _is_atom(text) else f"({text})" for text in symbols]
    return "*".join([str(coefficient)] * (coefficient != 1 or not factors) + factors)


@lru_cache(maxsize=16384)
def _expanded(dims: tuple[Dim, ...]) -> _Polynomial:
    """The product of sizes without parentheses."""
    found: _Polynomial = {(): 1}
    for dim in dims:
        found = _multiplied(found, _polynomial(dim))
    return found


@lru_cache(maxsize=4096)
def _polynomial(dim: Dim) -> _Polynomial:
    return _read(ast.parse(dim.text, mode="eval").body)


def _read(size: ast.expr) -> _Polynomial:
    match size:
        case ast.Constant(int() as value):
            return {(): value} if value else {}
        case ast.BinOp(left, ast.Mult(), right):
            return _multiplied(_read(left), _read(right))
        case ast.BinOp(left, ast.Add(), right):
            return _added(_read(left), _read(right))
        case ast.BinOp(left, ast.Sub(), right):
            return _added(_read(left), _multiplied({(): -1}, _read(right)))
        case ast.UnaryOp(ast.USub(), operand):
            return _multiplied({(): -1}, _read(operand))
    return {(ast.unparse(size),): 1}


def _added(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    sums = {term: a.get(term, 0) + b.get(term, 0) for term in (*a, *b)}
    return {term: value for term, value in sums.items() if value}


def _multiplied(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    found: Counter[tuple[str, ...]] = Counter()
    for one, first in a.items():
        for other, second in b.items():
            found[tuple(sorted((*one, *other)))] += first * second
    return {term: value for term, value in found.items() if value}


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
