"""What tracing found that sizes have to do with each other, and which sizes follow from it.

An operator that takes only equal sizes, such as an einsum over a parameter of length 128 and an
argument, makes tracing note an equation. Where one side is a bare symbol, PyTorch replaces it: the
size of the argument is 128 from then on. Where it is not, as in `s // 64 == 2` of an argument that
was cut into blocks before, the size keeps its own expression, and nothing that compares expressions
sees that both are the same. So the equations are solved here. Every call is checked for them, so
what follows from them holds at every call that is let in, and no other size is held fast.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import CleanDiv, FloorDiv

Values = dict[sympy.Expr, sympy.Expr]
"""Sizes, and for each a simpler one that is equal to it."""


def relations_of(nodes: Iterable[fx.Node]) -> list[sympy.Basic]:
    """What tracing found about the sizes of these inputs of a program, or about a divisor.

    Such as `s0 % 2 == 0` for a module that views its argument as pairs. Other conditions that
    tracing notes are about sizes of 1, which it treats apart; graphs need not.
    """
    values = [node.meta.get("val") for node in nodes]
    sizes = [size for value in values for size in (value, *getattr(value, "shape", ()))]
    symbolic = [size for size in sizes if isinstance(size, torch.SymInt)]
    if not symbolic:
        return []
    symbols = {symbol for size in symbolic for symbol in size.node.expr.free_symbols}
    env = symbolic[0].node.shape_env
    # torch 2.6 puts off what it would have to check when the program is called.
    put_off = [late for each in env.deferred_runtime_asserts.values() for late in each]
    noted = (_plain(env.simplify(env.replace(each.expr))) for each in (*env.guards, *put_off))
    return [x for x in dict.fromkeys(noted) if _is_relation(x) and x.free_symbols <= symbols]


def _is_relation(condition: sympy.Basic) -> bool:
    """True for an equation, and for an inequality between sums of sizes."""
    match condition:
        case sympy.Eq():
            return True
        case sympy.Ge() | sympy.Gt() | sympy.Le() | sympy.Lt():
            plain = (sympy.Symbol, sympy.Integer, sympy.Add, sympy.Mul, type(condition))
            is_sum = all(isinstance(part, plain) for part in sympy.preorder_traversal(condition))
            return is_sum and all(side.free_symbols for side in condition.args)
    return False


def solved(relations: Sequence[sympy.Basic]) -> Values:
    """What sizes are equal to wherever the equations among the relations hold.

    For the size of an argument, a factor that both sides have is divided by, as if it were never
    0: a call with no elements may be refused for the size that all other calls have.
    """
    equations = [relation.args for relation in relations if isinstance(relation, sympy.Eq)]
    values: Values = {}
    known = -1
    while known < len(values):
        known = len(values)
        for left, right in equations:
            for size, value in _follows(simplest(left, values), simplest(right, values)):
                values[size] = value
    return values


def simplest(expr: sympy.Expr, values: Mapping[sympy.Expr, sympy.Expr]) -> sympy.Expr:
    """The expression with every size in it replaced, until none is left."""
    if not values:
        return expr
    expr = _plain(expr)
    while (simpler := expr.xreplace(values)) != expr:
        expr = simpler
    return expr


def _plain(expr: sympy.Basic) -> Any:
    """With one kind of quotient: tracing has another for what it has found to be exact."""
    return expr.replace(CleanDiv, FloorDiv)


def _follows(left: sympy.Expr, right: sympy.Expr) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """A size and what it is equal to if `left` is equal to `right`; nothing where that is open."""
    if left == right:
        return
    if _is_size(left) and _is_size(right):
        yield max(left, right, key=_complexity), min(left, right, key=_complexity)
        return
    difference = sympy.expand(left - right)
    for size in sorted(difference.atoms(sympy.Symbol, FloorDiv), key=_complexity):
        factor, rest = difference.coeff(size, 1), difference.coeff(size, 0)
        divides = factor.is_Integer or (size.is_Symbol and _is_product(factor))
        if factor != 0 != rest and divides and difference == factor * size + rest:
            value = -rest / factor
            if value.is_Integer:
                yield size, value
                return


def _is_size(expr: sympy.Expr) -> bool:
    return isinstance(expr, sympy.Symbol | sympy.Integer | FloorDiv)


def _is_product(expr: sympy.Expr) -> bool:
    """True for a product of numbers and of symbols, which tracing takes for more than 0."""
    factors = sympy.Mul.make_args(expr)
    return all(isinstance(each, sympy.Symbol | sympy.Integer) for each in factors)


def _complexity(expr: sympy.Expr) -> tuple[int, str]:
    """Numbers first, then symbols; the text only makes the order the same every time."""
    return (0 if expr.is_Integer else 1 + int(expr.count_ops()), str(expr))
