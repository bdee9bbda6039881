"""Softmax and its relatives: one pass finds a row's maximum and the sum of its exponentials."""

import math

from kernelwright.capture.making import Maker, Part, Rows, Rule
from kernelwright.capture.scope import op, test
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Reduction


def exponentials(m: Maker, rows: Rows) -> tuple[Part, Part]:
    """The maximum of every row, and the sum of exp(x - maximum)."""
    return m.reduce_twice(Reduction.EXP_SUM, rows, ("maximum", "exp_sum"))


def log_probability(x: Expr, maximum: Expr, total: Expr) -> Expr:
    """Log-softmax of an element."""
    return op("sub", op("sub", x, maximum), op("log", total))


def _softmax(m: Maker) -> Part:
    rows = m.rows(m.wide(m.tensor()))
    maximum, total = exponentials(m, rows)
    value = m.apply(
        lambda x, high, total: op("div", op("exp", op("sub", x, high)), total),
        *(rows.value, maximum, total),
        dtype=m.dtype,
    )
    return m.restored(value)


def _safe_softmax(m: Maker) -> Part:
    """Rows of -inf alone become zeros."""
    rows = m.rows(m.wide(m.tensor()))
    maximum, total = exponentials(m, rows)

    def each(x: Expr, high: Expr, total: Expr) -> Expr:
        share = op("div", op("exp", op("sub", x, high)), total)
        return op("where", test("eq", high, m.number(-math.inf)), m.number(0.0), share)

    return m.restored(m.apply(each, rows.value, maximum, total, dtype=m.dtype))


def _log_softmax(m: Maker) -> Part:
    rows = m.rows(m.wide(m.tensor()))
    maximum, total = exponentials(m, rows)
    value = m.apply(log_probability, rows.value, maximum, total, dtype=m.dtype)
    return m.restored(value)


def _logsumexp(m: Maker) -> Part:
    """The maximum itself where it is infinite: its distance to itself is no number."""
    rows = m.rows(m.wide(m.tensor()))
    maximum, total = exponentials(m, rows)

    def restore(high: Expr, total: Expr) -> Expr:
        return op("where", test("isinf", high), high, op("add", high, op("log", total)))

    return m.close(m.apply(restore, maximum, total, dtype=m.dtype), rows)


RULES: dict[str, Rule] = {
    **{name: _softmax for name in ("softmax", "_softmax", "special_softmax")},
    "_safe_softmax": _safe_softmax,
    **{name: _log_softmax for name in ("log_softmax", "_log_softmax", "special_log_softmax")},
    **{name: _logsumexp for name in ("logsumexp", "special_logsumexp")},
}
"""By the operator's short name."""
