"""Attention of wide heads as two products and a softmax: no kernel has room for both products."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.ir.attention import Attention, Masking, Weighing
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand, Size
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Kind, Pointwise, Project, Reduce, Reduction
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, TensorType, TupleType, ValueType
from kernelwright.rewrite.surroundings import Surroundings

MOST_COLUMNS = 256
"""Columns of a head that a kernel of attention has room for."""
_LEAST_FLOPS = 2**28
"""FLOPs below which launches decide the time, and PyTorch's call has one."""


@dataclass(slots=True)
class _Maker:
    """Nodes in place of one."""

    around: Surroundings
    whole: Node
    made: list[Node] = field(default_factory=list)

    def add(self, kind: Kind, form: ValueType, inputs: Sequence[Node], name: str) -> Node:
        """A new node, which stands for the call."""
        node = Node(
            name=self.around.fresh(name),
            kind=kind,
            type=form,
            inputs=tuple(it.name for it in inputs),
            operators=self.whole.operators,
            source=self.whole.source,
        )
        self.made.append(node)
        return node

    def pointwise(self, expr: Expr, inputs: Sequence[Node], shape: Sequence[Dim]) -> Node:
        """A new node for an expression."""
        return self.add(Pointwise(expr), TensorType(expr.dtype, tuple(shape)), inputs, "scores")


def wide_attention_apart(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    """Products, steps and a softmax for float32 attention that no kernel takes."""
    kind = node.kind
    if not isinstance(kind, Attention) or node.tensor.dtype is not DType.F32:
        return None
    q, k, v, *masks = (around.node(name) for name in node.inputs)
    widest = max(q.tensor.shape[-1].hint, v.tensor.shape[-1].hint)
    heads = {it.tensor.shape[:-2] for it in (q, k, v)}
    if widest <= MOST_COLUMNS or len(heads) > 1 or kind.order is not None:
        return None
    if 4 * k.tensor.shape[-2].hint * q.tensor.numel_hint < _LEAST_FLOPS:
        return None
    maker = _Maker(around, node)
    scores = _masked(maker, kind, _scaled(maker, kind, q, k), masks)
    shares = _weighed(maker, kind, scores)
    batch = "abcdefgh"[: q.tensor.rank - 2]
    sums = maker.add(
        Contract(f"{batch}xy", f"{batch}yz", f"{batch}xz"), node.type, (shares, v), node.name
    )
    return (*maker.made[:-1], sums)


def _scaled(maker: _Maker, kind: Attention, q: Node, k: Node) -> Node:
    batch = "abcdefgh"[: q.tensor.rank - 2]
    shape = (*q.tensor.shape[:-1], k.tensor.shape[-2])
    product = maker.add(
        Contract(f"{batch}xz", f"{batch}yz", f"{batch}xy"),
        TensorType(DType.F32, shape),
        (q, k),
        "scores",
    )
    depth = q.tensor.shape[-1]
    value = Operand(0, DType.F32)
    if kind.scale is not None:
        expr = Call("mul", (value, Literal(kind.scale, DType.F32)), DType.F32)
    elif depth.is_static:
        expr = Call("mul", (value, Literal(depth.hint**-0.5, DType.F32)), DType.F32)
    else:
        root = Call("sqrt", (Size(depth, DType.F32),), DType.F32)
        expr = Call("div", (value, root), DType.F32)
    return maker.pointwise(expr, (product,), shape)


def _masked(maker: _Maker, kind: Attention, scores: Node, masks: Sequence[Node]) -> Node:
    shape, value = scores.tensor.shape, Operand(0, DType.F32)
    never = Literal(float("-inf"), DType.F32)
    if kind.causal:
        seen = Call("le", (Coordinate(-1), Coordinate(-2)), DType.BOOL)
        expr: Expr = Call("where", (seen, value, never), DType.F32)
        scores = maker.pointwise(expr, (scores,), shape)
    if kind.masking is Masking.KEEP:
        expr = Call("where", (Operand(1, DType.BOOL), value, never), DType.F32)
        scores = maker.pointwise(expr, (scores, *masks), shape)
    elif kind.masking is Masking.ADD:
        expr = Call("add", (value, Operand(1, DType.F32)), DType.F32)
        scores = maker.pointwise(expr, (scores, *masks), shape)
    return scores


def _weighed(maker: _Maker, kind: Attention, scores: Node) -> Node:
    shape, value = scores.tensor.shape, Operand(0, DType.F32)
    if kind.weighing is Weighing.RELU:
        return maker.pointwise(Call("relu", (value,), DType.F32), (scores,), shape)
    row = TensorType(DType.F32, (*shape[:-1], ONE))
    both = maker.add(
        Reduce(Reduction.EXP_SUM, (len(shape) - 1,)), TupleType((row, row)), (scores,), "totals"
    )
    totals = [maker.add(Project(index), row, (both,), "total") for index in (0, 1)]
    largest, total = (Operand(index, DType.F32) for index in (1, 2))
    exponential = Call("exp", (Call("sub", (value, largest), DType.F32),), DType.F32)
    share = Call("div", (exponential, total), DType.F32)
    if kind.empty_is_zero and kind.masking is not Masking.NONE:
        never = Literal(float("-inf"), DType.F32)
        is_empty = Call("eq", (largest, never), DType.BOOL)
        share = Call("where", (is_empty, Literal(0.0, DType.F32), share), DType.F32)
    return maker.pointwise(share, (scores, *totals), shape)
