"""What happens to scores on the way from a product to the shares that weigh values.

Steps are found from the shares back to the product; each says where its operands lie by the parts
of the dimensions of the shares.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from kernelwright.ir.expr import Call, Expr, Literal, Operand, walk
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Pointwise, Project, Reduce, Reduction, View
from kernelwright.ir.types import DType, TensorType
from kernelwright.lower.view_chains import Parts, leaves, shown
from kernelwright.rewrite.surroundings import Surroundings


class Do(Enum):
    """What a step does to scores."""

    SOFTMAX = auto()
    RELU = auto()
    SCALE = auto()
    """Multiplies with its value."""
    DIVIDE = auto()
    ADD = auto()
    SUBTRACT = auto()
    KEEP = auto()
    """Its value where true, else -inf."""
    DROP = auto()
    """-inf where its value is true."""
    KEEP_FAR = auto()
    """Its value where true, else a number that is far below all scores."""
    DROP_FAR = auto()
    """Such a number where its value is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreStep:
    """One step on scores and another value."""

    do: Do
    value: Expr | None = None
    """Its operands are those of `node`."""
    node: Node
    dims: list[Parts]
    """Dimensions of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """A product, and the steps from its results to shares."""

    product: Node
    dims: list[Parts]
    """Dimensions of the product."""
    steps: tuple[ScoreStep, ...]
    """Those next to the product first."""


_MOST_STEPS = 24


def scores_of(around: Surroundings, shares: Node, dims: list[Parts], keys: Parts) -> Scores | None:
    """The product that shares are made of; `keys` are the parts of the dimension of its sums."""
    return _back(around, shares, dims, keys, ())


def _back(
    around: Surroundings,
    node: Node,
    dims: list[Parts],
    keys: Parts,
    steps: tuple[ScoreStep, ...],
) -> Scores | None:
    if len(steps) > _MOST_STEPS:
        return None
    if isinstance(node.kind, Contract):
        return Scores(product=node, dims=dims, steps=steps)
    if isinstance(node.kind, View):
        source = around.node(node.inputs[0])
        before = shown(node.kind.map, dims, source.tensor.shape)
        return None if before is None else _back(around, source, before, keys, steps)
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    softmax = _scores_of_softmax(around, node, dims, keys)
    if softmax is not None:
        step = ScoreStep(do=Do.SOFTMAX, node=node, dims=dims)
        return _back(around, softmax, dims, keys, (step, *steps))
    for index, name in enumerate(node.inputs):
        source = around.node(name)
        # Nothing else has steps that lead back to a product.
        if not isinstance(source.kind, Contract | Pointwise | View):
            continue
        if source.tensor.shape != node.type.shape:
            continue
        peeled = tuple(_peeled(node.kind.expr, index))
        if None in peeled:
            continue
        own = tuple(
            ScoreStep(do=it[0], value=it[1], node=node, dims=dims)
            for it in peeled
            if it is not None
        )
        found = _back(around, source, dims, keys, (*reversed(own), *steps))
        if found is not None:
            return found
    return None


def _scores_of_softmax(
    around: Surroundings, node: Node, dims: list[Parts], keys: Parts
) -> Node | None:
    """What a node is the softmax of, over keys; None of another node."""
    assert isinstance(node.kind, Pointwise)
    if len(node.inputs) != 3 or str(_wide(node.kind.expr)) != "div(exp(sub(%0, %1)), %2)":
        return None
    scores, *totals = (around.node(name) for name in node.inputs)
    for index, total in enumerate(totals):
        if total.kind != Project(index):
            return None
        source = around.node(total.inputs[0])
        if not isinstance(source.kind, Reduce) or source.kind.op is not Reduction.EXP_SUM:
            return None
        reduced = [leaf for d in source.kind.dims for leaf in leaves(dims[d])]
        if source.inputs != (scores.name,) or reduced != leaves(keys):
            return None
    return scores


_NEVER = float("-inf")
FAR = -1e9
"""What people write for -inf, at most: where a row has other scores, its exponential is 0."""
_Peeled = tuple[Do, Expr | None]


def _peeled(expr: Expr, scores: int) -> Iterator[_Peeled | None]:
    """Steps of an expression of scores, the last one first; None at the end where it is another."""
    while expr != Operand(scores, expr.dtype):
        match expr:
            # Scores of 16 bits are computed with in float32.
            case Call("cast", (first,)) if expr.dtype.is_float and first.dtype.is_float:
                pass
            case Call("mul", (first, second)) if not _reads(second, scores):
                yield Do.SCALE, second
            case Call("mul", (second, first)) if not _reads(second, scores):
                yield Do.SCALE, second
            case Call("div", (first, second)) if not _reads(second, scores):
                yield Do.DIVIDE, second
            case Call("add", (first, second)) if not _reads(second, scores):
                yield Do.ADD, second
            case Call("add", (second, first)) if not _reads(second, scores):
                yield Do.ADD, second
            case Call("sub", (first, second)) if not _reads(second, scores):
                yield Do.SUBTRACT, second
            case Call("where", (second, first, Literal(value))) if _drops(value, second, scores):
                yield Do.KEEP if value == _NEVER else Do.KEEP_FAR, second
            case Call("where", (second, Literal(value), first)) if _drops(value, second, scores):
                yield Do.DROP if value == _NEVER else Do.DROP_FAR, second
            case Call("relu", (first,)):
                yield Do.RELU, None
            case _:
                yield None
                return
        expr = first


def _drops(value: float, condition: Expr, scores: int) -> bool:
    return value <= FAR and not _reads(condition, scores)


def _wide(expr: Expr) -> Expr:
    """An expression before its result is rounded."""
    match expr:
        case Call("cast", (inner,)) if inner.dtype is DType.F32:
            return inner
    return expr


def _reads(expr: Expr, operand: int) -> bool:
    return any(isinstance(part, Operand) and part.index == operand for part in walk(expr))
