"""Cross entropy and negative log-likelihood: the class of a row picked by where it stands.

An element counts where its coordinate is the target, so that a loss is a sum over the classes like
any other, and neither gathers nor writes what it picks from.
"""

from dataclasses import dataclass

from kernelwright.capture.losses import MEAN, SUM, reduced
from kernelwright.capture.making import Maker, NotMadeError, Part, Rows, Rule
from kernelwright.capture.scope import cast, op, test
from kernelwright.capture.softmaxes import exponentials, log_probability
from kernelwright.ir.expr import Expr, Literal
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.types import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picking:
    """A loss of one class for each row."""

    rows: Rows
    """Scores of the classes, in the type of the computation."""
    target: Part
    """The class of every row; the class dimension has size 1."""
    weight: Part | None
    """A factor for each class, ready to broadcast."""
    ignored: int
    """The target that stands for no class."""


def _class_dim(value: Part) -> int:
    return 0 if len(value.shape) == 1 else 1


def _picking(m: Maker) -> _Picking:
    value = m.wide(m.tensor())
    dim = _class_dim(value)
    target = m.unsqueeze(m.tensor("target"), dim)
    weight = m.trailing(m.optional("weight"), len(value.shape) - 1 - dim)
    ignored = m.call.arguments["ignore_index"]
    if len(target.shape) != len(value.shape) or not isinstance(ignored, int):
        raise NotMadeError
    rows = Rows(value, (dim,), keeps=False)
    return _Picking(rows=rows, target=target, weight=weight, ignored=ignored)


def _at_target(m: Maker, p: _Picking, values: Part, name: str) -> Part:
    """The one of `values` along the class dimension that the target names; 0 where none is."""
    (dim,) = p.rows.dims
    place = m.coordinate(p.rows.value.shape, dim)

    def pick(x: Expr, target: Expr) -> Expr:
        return op("where", test("eq", place, cast(target, DType.I64)), x, m.number(0.0))

    chosen = m.apply(pick, values, p.target, name=f"{name}_if_chosen", shape=p.rows.value.shape)
    return m.reduce(Reduction.SUM, Rows(chosen, p.rows.dims, keeps=False), name)


def _counts(p: _Picking, target: Expr) -> Expr:
    return test("ne", cast(target, DType.I64), Literal(p.ignored, DType.I64))


def _averaged(m: Maker, p: _Picking, loss: Part, weight: Part | None) -> Part:
    """The losses of all rows as the call reduces them; a mean is over the weights that count."""
    how = m.call.arguments["reduction"]
    if how not in (MEAN, SUM):
        return m.close(m.converted(loss, m.dtype), p.rows)
    total = m.reduce(Reduction.SUM, m.rows(loss, [], keeps=False), "total")
    if how == MEAN:

        def counted(target: Expr, *weight: Expr) -> Expr:
            return op("where", _counts(p, target), *weight or (m.number(1.0),), m.number(0.0))

        parts = (p.target,) if weight is None else (p.target, weight)
        rows = m.rows(m.apply(counted, *parts, name="counted"), [], keeps=False)
        count = m.reduce(Reduction.SUM, rows, "count")
        total = m.apply(lambda x, n: op("div", x, n), total, count, name="mean", dtype=m.dtype)
    return m.squeeze(m.converted(total, m.dtype), tuple(range(len(total.shape))))


def _nll(m: Maker) -> Part:
    p = _picking(m)
    picked = _at_target(m, p, p.rows.value, "picked")
    weight = p.weight and _at_target(m, p, p.weight, "class_weight")

    def each(picked: Expr, target: Expr, *weight: Expr) -> Expr:
        loss = op("neg", op("mul", picked, *weight) if weight else picked)
        return op("where", _counts(p, target), loss, m.number(0.0))

    parts = (picked, p.target) if weight is None else (picked, p.target, weight)
    return _averaged(m, p, m.apply(each, *parts), weight)


def _cross_entropy(m: Maker) -> Part:
    value, target = m.tensor(), m.tensor("target")
    by_class = len(target.shape) < len(value.shape)
    return _of_classes(m) if by_class else _of_probabilities(m)


def _of_classes(m: Maker) -> Part:
    p = _picking(m)
    smoothing = m.literal("label_smoothing")
    maximum, total = exponentials(m, p.rows)
    picked = _at_target(m, p, p.rows.value, "picked")
    weight = p.weight and _at_target(m, p, p.weight, "class_weight")
    smooth = _smooth(m, p, maximum, total) if smoothing else None
    extra = [part for part in (weight, smooth) if part is not None]

    def each(picked: Expr, high: Expr, total: Expr, target: Expr, *extra: Expr) -> Expr:
        rest = list(extra)
        loss = op("neg", log_probability(picked, high, total))
        if weight is not None:
            loss = op("mul", loss, rest.pop(0))
        if rest:
            share = op("div", m.number(smoothing), m.count(p.rows))
            sure = op("mul", m.number(1.0 - smoothing), loss)
            loss = op("add", sure, op("mul", share, rest.pop(0)))
        return op("where", _counts(p, target), loss, m.number(0.0))

    loss = m.apply(each, picked, maximum, total, p.target, *extra)
    return _averaged(m, p, loss, weight)


def _smooth(m: Maker, p: _Picking, maximum: Part, total: Part) -> Part:
    """Minus the (weighted) log-probabilities of all classes, summed."""

    def each(x: Expr, high: Expr, total: Expr, *weight: Expr) -> Expr:
        found = op("neg", log_probability(x, high, total))
        return op("mul", found, *weight) if weight else found

    parts = (p.rows.value, maximum, total)
    terms = m.apply(each, *parts, *([p.weight] if p.weight else []), name="surprise")
    return m.reduce(Reduction.SUM, Rows(terms, p.rows.dims, keeps=False), "smooth")


def _of_probabilities(m: Maker) -> Part:
    value = m.wide(m.tensor())
    dim = _class_dim(value)
    rows = Rows(value, (dim,), keeps=False)
    smoothing = m.literal("label_smoothing")
    maximum, total = exponentials(m, rows)
    weight = m.trailing(m.optional("weight"), len(value.shape) - 1 - dim)

    def each(x: Expr, high: Expr, total: Expr, target: Expr, *weight: Expr) -> Expr:
        if smoothing:
            share = op("div", m.number(smoothing), m.count(rows))
            target = op("add", op("mul", target, m.number(1.0 - smoothing)), share)
        found = op("mul", op("neg", log_probability(x, high, total)), target)
        return op("mul", found, *weight) if weight else found

    parts = (value, maximum, total, m.tensor("target"))
    terms = m.apply(each, *parts, *([weight] if weight else []), name="surprise")
    loss = m.reduce(Reduction.SUM, Rows(terms, (dim,), keeps=False), "loss")
    return reduced(m, lambda x: x, m.squeeze(loss, (dim,)))


RULES: dict[str, Rule] = {
    "cross_entropy_loss": _cross_entropy,
    **{name: _nll for name in ("nll_loss", "nll_loss_nd", "nll_loss2d")},
}
"""By the operator's short name."""
