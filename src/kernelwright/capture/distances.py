"""Distances and angles between vectors, and the losses made of them."""

from kernelwright.capture.losses import reduced
from kernelwright.capture.making import Maker, Part, Rows, Rule, counted
from kernelwright.capture.reductions import norm_of
from kernelwright.capture.scope import op, test
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Reduction


def _cosine_similarity(m: Maker) -> Part:
    """Each vector is divided by its norm, or by `eps` where that is larger."""
    eps = m.number(m.literal("eps"))
    a, b = _together(m, m.tensor("x1"), m.tensor("x2"))
    dims = counted(m.call.arguments["dim"], len(a.shape))
    norms = [norm_of(m, Rows(x, dims, keeps=True), 2) for x in (a, b)]

    def each(a: Expr, b: Expr, norm_a: Expr, norm_b: Expr) -> Expr:
        first = op("div", a, op("maximum", norm_a, eps))
        return op("mul", first, op("div", b, op("maximum", norm_b, eps)))

    terms = m.apply(each, a, b, *norms, name="product")
    rows = Rows(terms, dims, keeps=False)
    return m.close(m.converted(m.reduce(Reduction.SUM, rows), m.dtype), rows)


def _together(m: Maker, *parts: Part) -> list[Part]:
    """The operands in the type of the computation, lined up with the longest of them."""
    wide = [m.wide(part) for part in parts]
    rank = max(len(part.shape) for part in wide)
    for at, part in enumerate(wide):
        while len(wide[at].shape) < rank:
            wide[at] = m.unsqueeze(wide[at], 0)
        if not part.shape:
            wide[at] = m.reshape(part, wide[at].shape)
    return wide


def _distance(m: Maker, a: Part, b: Part) -> Part:
    """The p-norm of a - b + eps along the last dimension, which is kept."""
    eps = m.number(m.literal("eps"))
    away = m.apply(lambda a, b: op("add", op("sub", a, b), eps), a, b, name="difference")
    last = (len(away.shape) - 1,)
    return norm_of(m, Rows(m.wide(away), last, keeps=True), m.literal("p"))


def _pairwise_distance(m: Maker) -> Part:
    found = m.converted(_distance(m, m.tensor("x1"), m.tensor("x2")), m.dtype)
    keeps = m.call.arguments["keepdim"]
    return found if keeps else m.squeeze(found, (len(found.shape) - 1,))


def _triplet_margin_loss(m: Maker) -> Part:
    """With `swap`, the nearer of anchor and positive counts as being near the negative."""
    anchor, positive, negative = (m.tensor(name) for name in ("anchor", "positive", "negative"))
    margin = m.number(m.literal("margin"))
    near = _distance(m, anchor, positive)
    far = [_distance(m, anchor, negative)]
    if m.call.arguments["swap"]:
        far.append(_distance(m, positive, negative))

    def each(near: Expr, far: Expr, *others: Expr) -> Expr:
        nearest = op("minimum", far, *others) if others else far
        return op("maximum", op("sub", op("add", margin, near), nearest), m.number(0.0))

    last = len(near.shape) - 1
    return reduced(m, each, *(m.squeeze(part, (last,)) for part in (near, *far)))


def _cosine_embedding_loss(m: Maker) -> Part:
    a, b = m.tensor("input1"), m.tensor("input2")
    target = m.tensor("target")
    dim = (len(target.shape),)
    margin, tiny = m.number(m.literal("margin")), m.number(1e-12)

    def summed(x: Part, y: Part, name: str) -> Part:
        terms = m.wide(m.apply(lambda x, y: op("mul", x, y), x, y, name=f"{name}_term"))
        rows = Rows(terms, dim, keeps=False)
        return m.close(m.reduce(Reduction.SUM, rows, name), rows)

    def each(both: Expr, first: Expr, second: Expr, target: Expr) -> Expr:
        squares = op("mul", op("add", first, tiny), op("add", second, tiny))
        cosine = op("div", both, op("sqrt", squares))
        zero, one = m.number(0.0), m.number(1.0)
        wanted = m.number_of(target)
        alike = op("where", test("eq", wanted, one), op("sub", one, cosine), zero)
        apart = op("maximum", op("sub", cosine, margin), zero)
        return op("add", alike, op("where", test("eq", wanted, m.number(-1.0)), apart, zero))

    parts = (summed(a, b, "product"), summed(a, a, "square"), summed(b, b, "square"))
    return reduced(m, each, *parts, target)


RULES: dict[str, Rule] = {
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _pairwise_distance,
    "triplet_margin_loss": _triplet_margin_loss,
    "cosine_embedding_loss": _cosine_embedding_loss,
}
"""By the operator's short name."""
