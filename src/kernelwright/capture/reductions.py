"""Sums, extremes, moments and norms of rows: ATen names to reductions and what is around them."""

from collections.abc import Callable

from kernelwright.capture.making import ItemRule, Maker, NotMadeError, Part, Rows, Rule, accumulated
from kernelwright.capture.scope import op, test
from kernelwright.ir.expr import Call, Expr, Literal
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.types import DType

Each = Callable[[Expr], Expr]
"""What becomes of an element before it is reduced, or of a total after."""


def total_of(m: Maker, op_: Reduction, value: Part, each: Each | None = None) -> Part:
    """All or the asked-for elements reduced, as the call's value; floats and integers alike."""
    if m.dtype is DType.BOOL:
        raise NotMadeError
    into = accumulated(m.dtype)
    wide = m.converted(value, into) if each is None else m.apply(each, value, dtype=into)
    rows = m.rows(wide)
    return m.close(m.converted(m.reduce(op_, rows), m.dtype), rows)


def _total(op_: Reduction, each: Each | None = None) -> Rule:
    return lambda m: total_of(m, op_, m.tensor(), each)


def _is_number(x: Expr) -> Expr:
    return test("logical_not", test("isnan", x))


def _nan_as_zero(x: Expr) -> Expr:
    return op("where", test("isnan", x), Literal(0.0, x.dtype), x) if x.dtype.is_float else x


def mean_of(m: Maker, value: Part, each: Each | None = None, rows: Rows | None = None) -> Part:
    """The mean of a row, in the type of the computation, the dimensions kept."""
    rows = rows or m.rows(m.wide(value) if each is None else m.apply(each, value, dtype=m.compute))
    total = m.reduce(Reduction.SUM, rows)
    return m.apply(lambda x: op("div", x, m.count(rows)), total, name="mean")


def _mean(m: Maker) -> Part:
    rows = m.rows(m.wide(m.tensor()))
    total = m.reduce(Reduction.SUM, rows)
    mean = m.apply(lambda x: op("div", x, m.count(rows)), total, dtype=m.dtype)
    return m.close(mean, rows)


def _nanmean(m: Maker) -> Part:
    value = m.tensor()
    kept = m.rows(m.apply(_nan_as_zero, value, name="number"))
    flags = m.rows(m.apply(lambda x: Call("cast", (_is_number(x),), m.compute), value, name="is"))
    total, count = m.reduce(Reduction.SUM, kept), m.reduce(Reduction.SUM, flags, "count")
    mean = m.apply(lambda x, n: op("div", x, n), total, count, dtype=m.dtype)
    return m.close(mean, kept)


def _count_nonzero(m: Maker) -> Part:
    def is_counted(x: Expr) -> Expr:
        truth = test("ne", x, Literal(0.0 if x.dtype.is_float else 0, x.dtype))
        return Call("cast", (x if x.dtype is DType.BOOL else truth,), DType.I64)

    rows = m.rows(m.apply(is_counted, m.tensor(), dtype=DType.I64))
    return m.close(m.reduce(Reduction.SUM, rows), rows)


def _truth(op_: Reduction) -> Rule:
    """any and all; of bytes the result is a byte."""

    def rule(m: Maker) -> Part:
        if m.call.arguments.get("dim") == []:
            raise NotMadeError
        rows = m.rows(m.converted(m.tensor(), DType.BOOL))
        return m.close(m.converted(m.reduce(op_, rows), m.dtype), rows)

    return rule


# --- Extremes ----------------------------------------------------------------------------------

_OF_TRUTHS = {Reduction.MAXIMUM: Reduction.ANY, Reduction.MINIMUM: Reduction.ALL}


def _extreme(op_: Reduction, rows: Rows, m: Maker) -> Part:
    truths = rows.value.dtype is DType.BOOL
    return m.close(m.reduce(_OF_TRUTHS[op_] if truths else op_, rows), rows)


def _amax(op_: Reduction) -> Rule:
    return lambda m: _extreme(op_, m.rows(), m)


def _index_of(m: Maker, op_: Reduction, rows: Rows) -> Part:
    value = rows.value
    if value.dtype is DType.BOOL:
        rows = Rows(m.converted(value, DType.U8), rows.dims, rows.keeps)
    return m.close(m.reduce(op_, rows), rows)


def _argmax(op_: Reduction) -> Rule:
    return lambda m: _index_of(m, op_, m.rows())


def _with_index(extreme: Reduction, place: Reduction) -> ItemRule:
    """max and min along a dimension: values, and where the first of them is."""

    def rule(m: Maker, used: frozenset[int]) -> dict[int, Part]:
        rows = m.rows()
        made: dict[int, Part] = {}
        if 0 in used:
            made[0] = _extreme(extreme, rows, m)
        if 1 in used:
            made[1] = _index_of(m, place, rows)
        return made

    return rule


def _aminmax(m: Maker, used: frozenset[int]) -> dict[int, Part]:
    rows = m.rows()
    ends = {0: Reduction.MINIMUM, 1: Reduction.MAXIMUM}
    return {at: _extreme(op_, rows, m) for at, op_ in ends.items() if at in used}


# --- Moments -----------------------------------------------------------------------------------


def variance(m: Maker, m2: Expr, rows: Rows, correction: float) -> Expr:
    """The sum of squared distances from the mean, over the elements less the correction."""
    count: Expr = m.count(rows)
    if correction:
        count = op("maximum", op("sub", count, m.number(correction)), m.number(0.0))
    return op("div", m2, count)


def _correction(m: Maker) -> float:
    if "unbiased" in m.call.arguments:
        return float(m.call.arguments["unbiased"])
    return 1.0 if m.call.arguments.get("correction") is None else m.literal("correction")


def _moments(m: Maker, after: Each) -> tuple[Rows, Part, Part]:
    """Rows, their mean in the type of the computation, and what `after` makes of their variance."""
    rows = m.rows(m.wide(m.tensor()))
    mean, m2 = m.reduce_twice(Reduction.MOMENTS, rows, ("mean", "m2"))
    correction = _correction(m)
    return (
        rows,
        mean,
        m.apply(lambda m2: after(variance(m, m2, rows, correction)), m2, dtype=m.dtype),
    )


def _spread(after: Each) -> Rule:
    def rule(m: Maker) -> Part:
        rows, _, spread = _moments(m, after)
        return m.close(spread, rows)

    return rule


def _spread_and_mean(after: Each) -> ItemRule:
    def rule(m: Maker, used: frozenset[int]) -> dict[int, Part]:
        rows, mean, spread = _moments(m, after)
        return {0: m.close(spread, rows), 1: m.close(m.converted(mean, m.dtype), rows)}

    return rule


def _root(x: Expr) -> Expr:
    return op("sqrt", x)


# --- Norms -------------------------------------------------------------------------------------


def norm_of(m: Maker, rows: Rows, order: float) -> Part:
    """The p-norm of every row, in the type of the computation, the dimensions kept.

    `rows` holds elements in the type of the computation.
    """

    def reduced(op_: Reduction, each: Each) -> Part:
        value = m.apply(each, rows.value, name="term")
        return m.reduce(op_, Rows(value, rows.dims, rows.keeps))

    if order == 2:
        squares = reduced(Reduction.SUM, lambda x: op("mul", x, x))
        return m.apply(_root, squares, name="norm")
    if order == 1:
        return reduced(Reduction.SUM, lambda x: op("abs", x))
    if order == float("inf"):
        return reduced(Reduction.MAXIMUM, lambda x: op("abs", x))
    if order == -float("inf"):
        return reduced(Reduction.MINIMUM, lambda x: op("abs", x))
    if order == 0:
        return reduced(
            Reduction.SUM, lambda x: Call("cast", (test("ne", x, m.number(0.0)),), m.compute)
        )
    powers = reduced(Reduction.SUM, lambda x: op("pow", op("abs", x), m.number(order)))
    return m.apply(lambda x: op("pow", x, m.number(1.0 / order)), powers, name="norm")


def _norm(m: Maker) -> Part:
    """linalg_vector_norm(ord), and norm(p)."""
    given = m.call.arguments
    name = "ord" if "ord" in given else "p"
    order = 2.0 if given.get(name) is None else m.literal(name)
    return _normed(m, m.rows(m.wide(m.tensor())), order)


def _normed(m: Maker, rows: Rows, order: float) -> Part:
    return m.close(m.converted(norm_of(m, rows, order), m.dtype), rows)


def _frobenius(m: Maker) -> Part:
    """frobenius_norm, and those calls of linalg_norm and linalg_matrix_norm that are one."""
    value = m.tensor()
    order, dim = m.call.arguments.get("ord"), m.call.arguments.get("dim")
    rank = len(value.shape)
    axes = [dim] if isinstance(dim, int) else dim
    is_matrix = m.call.operator == "linalg_matrix_norm" or rank == 2 or len(axes or ()) == 2
    if order not in (None, "fro") and is_matrix:
        raise NotMadeError
    plain = 2.0 if order in (None, "fro") else m.literal("ord")
    return _normed(m, m.rows(m.wide(value), axes), plain)


def _dist(m: Maker) -> Part:
    """The p-norm of the difference of two tensors, of all its elements."""
    difference = m.apply(lambda a, b: op("sub", a, b), m.tensor(), m.tensor("other"), name="sub")
    return _normed(m, m.rows(m.wide(difference), []), m.literal("p"))


RULES: dict[str, Rule] = {
    "sum": _total(Reduction.SUM),
    "nansum": _total(Reduction.SUM, _nan_as_zero),
    "prod": _total(Reduction.PRODUCT),
    "mean": _mean,
    "nanmean": _nanmean,
    "count_nonzero": _count_nonzero,
    "any": _truth(Reduction.ANY),
    "all": _truth(Reduction.ALL),
    "amax": _amax(Reduction.MAXIMUM),
    "amin": _amax(Reduction.MINIMUM),
    "max": _amax(Reduction.MAXIMUM),
    "min": _amax(Reduction.MINIMUM),
    "argmax": _argmax(Reduction.ARGMAX),
    "argmin": _argmax(Reduction.ARGMIN),
    "var": _spread(lambda x: x),
    "std": _spread(_root),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "frobenius_norm": _frobenius,
    "linalg_norm": _frobenius,
    "linalg_matrix_norm": _frobenius,
    "dist": _dist,
}
"""By the operator's short name."""

ITEM_RULES: dict[str, ItemRule] = {
    "max": _with_index(Reduction.MAXIMUM, Reduction.ARGMAX),
    "min": _with_index(Reduction.MINIMUM, Reduction.ARGMIN),
    "aminmax": _aminmax,
    "var_mean": _spread_and_mean(lambda x: x),
    "std_mean": _spread_and_mean(_root),
}
"""Operators with several results, by their short name."""
