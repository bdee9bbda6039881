"""Losses that compare elements: an expression for each, and their mean or sum."""

import math
from collections.abc import Callable

from kernelwright.capture.making import Maker, Part, Rule
from kernelwright.capture.scope import op, test
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Reduction

MEAN, SUM = 1, 2
"""What the argument `reduction` of a loss means; 0 leaves the elements as they are."""


def reduced(m: Maker, each: Callable[..., Expr], *parts: Part, name: str = "loss") -> Part:
    """The value of a loss whose element is `each` of the parts' elements."""
    how = m.call.arguments["reduction"]
    if how not in (MEAN, SUM):
        return m.apply(each, *parts, dtype=m.dtype)
    rows = m.rows(m.apply(each, *parts, name=name, dtype=m.compute), [], keeps=False)
    total = m.reduce(Reduction.SUM, rows)
    if how == MEAN:
        total = m.apply(lambda x: op("div", x, m.count(rows)), total, name="mean", dtype=m.dtype)
    return m.close(m.converted(total, m.dtype), rows)


def _compared(each: Callable[[Maker, Expr, Expr], Expr], first: str = "self") -> Rule:
    """A loss of `self` and `target`."""
    return lambda m: reduced(
        m, lambda x, target: each(m, x, m.number_of(target)), m.tensor(first), m.tensor("target")
    )


def _difference(x: Expr, target: Expr) -> Expr:
    return op("sub", x, target)


def _mse(_: Maker, x: Expr, target: Expr) -> Expr:
    away = _difference(x, target)
    return op("mul", away, away)


def _l1(_: Maker, x: Expr, target: Expr) -> Expr:
    return op("abs", _difference(x, target))


def _half_square(m: Maker, away: Expr) -> Expr:
    return op("mul", op("mul", m.number(0.5), away), away)


def _smooth_l1(m: Maker, x: Expr, target: Expr) -> Expr:
    beta, away = m.literal("beta"), op("abs", _difference(x, target))
    if beta == 0:
        return away
    near = op("div", _half_square(m, away), m.number(beta))
    return op("where", test("lt", away, m.number(beta)), near, op("sub", away, m.number(beta / 2)))


def _huber(m: Maker, x: Expr, target: Expr) -> Expr:
    delta, away = m.literal("delta"), op("abs", _difference(x, target))
    far = op("mul", m.number(delta), op("sub", away, m.number(delta / 2)))
    return op("where", test("le", away, m.number(delta)), _half_square(m, away), far)


def _kl_div(m: Maker, x: Expr, target: Expr) -> Expr:
    if m.call.arguments["log_target"]:
        return op("mul", op("exp", target), op("sub", target, x))
    return op("sub", op("xlogy", target, target), op("mul", target, x))


def _soft_margin(_: Maker, x: Expr, target: Expr) -> Expr:
    return op("log1p", op("exp", op("neg", op("mul", x, target))))


def _hinge_embedding(m: Maker, x: Expr, target: Expr) -> Expr:
    zero, beyond = m.number(0.0), op("sub", m.number(m.literal("margin")), x)
    apart = op("where", test("ne", target, m.number(1.0)), op("maximum", beyond, zero), zero)
    return op("add", apart, op("where", test("ne", target, m.number(-1.0)), x, zero))


def _poisson_nll(m: Maker, x: Expr, target: Expr) -> Expr:
    if m.call.arguments["log_input"]:
        loss = op("sub", op("exp", x), op("mul", target, x))
    else:
        shifted = op("add", x, m.number(m.literal("eps")))
        loss = op("sub", x, op("mul", target, op("log", shifted)))
    if not m.call.arguments["full"]:
        return loss
    # Stirling's formula for log(target!), left out where it is not above 0
    tail = op("mul", m.number(0.5), op("log", op("mul", m.number(2 * math.pi), target)))
    rest = op("add", op("sub", op("mul", target, op("log", target)), target), tail)
    few = test("le", target, m.number(1.0))
    return op("add", loss, op("where", few, m.number(0.0), rest))


def _binary_cross_entropy(m: Maker) -> Part:
    """Logarithms below -100 count as -100."""

    def each(x: Expr, target: Expr, *weight: Expr) -> Expr:
        one, lowest = m.number(1.0), m.number(-100.0)
        right = op("maximum", op("log", x), lowest)
        wrong = op("maximum", op("log1p", op("neg", x)), lowest)
        loss = op("sub", op("mul", op("sub", target, one), wrong), op("mul", target, right))
        return op("mul", loss, *weight) if weight else loss

    return reduced(m, each, m.tensor(), m.tensor("target"), *m.given("weight"))


def _binary_cross_entropy_with_logits(m: Maker) -> Part:
    weights, positive = m.given("weight"), m.given("pos_weight")

    def each(x: Expr, target: Expr, *factors: Expr) -> Expr:
        one, found = m.number(1.0), op("log_sigmoid", x)
        if positive:
            more = op("mul", op("sub", factors[-1], one), target)
            found = op("mul", found, op("add", more, one))
        loss = op("sub", op("mul", op("sub", one, target), x), found)
        return op("mul", loss, factors[0]) if weights else loss

    return reduced(m, each, m.tensor(), m.tensor("target"), *weights, *positive)


def _margin_ranking(m: Maker) -> Part:
    margin = m.number(m.literal("margin"))

    def each(a: Expr, b: Expr, target: Expr) -> Expr:
        ordered = op("mul", op("neg", m.number_of(target)), op("sub", a, b))
        return op("maximum", op("add", ordered, margin), m.number(0.0))

    return reduced(m, each, m.tensor("input1"), m.tensor("input2"), m.tensor("target"))


RULES: dict[str, Rule] = {
    "mse_loss": _compared(_mse),
    "l1_loss": _compared(_l1),
    "smooth_l1_loss": _compared(_smooth_l1),
    "huber_loss": _compared(_huber),
    "kl_div": _compared(_kl_div),
    "soft_margin_loss": _compared(_soft_margin),
    "hinge_embedding_loss": _compared(_hinge_embedding),
    "poisson_nll_loss": _compared(_poisson_nll, first="input"),
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "margin_ranking_loss": _margin_ranking,
}
"""By the operator's short name."""
