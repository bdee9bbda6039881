"""Attention that is written by hand becomes one node, where the card has a kernel for it."""

from dataclasses import dataclass, replace

from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.expr import Call, Expr, Literal, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Permute, Pointwise, Project, Reduce, Reduction, View
from kernelwright.ir.library_calls import call_of_attention
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.rewrite.driver import Rule, apply
from kernelwright.rewrite.surroundings import Surroundings

_COLUMNS = range(8, 257)
"""Columns of a head with which products are worth a kernel that has both."""


def _attention_by_hand(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # A softmax over keys of scaled, masked products of rows, and the sums that it weighs, are what
    # attention means. Rows without keys give NaN in both.
    shares = _operands_of(around, node)
    scores = _scores_of(around, shares) if shares is not None else None
    steps = _steps_to_product(around, scores) if scores is not None else None
    if shares is None or steps is None or not _is_alone(around, shares):
        return None
    product = steps.product
    if not isinstance(product.kind, Contract) or not around.may_move(node):
        return None
    q, (k, before) = product.inputs[0], _keys(around, product)
    v = node.inputs[1]
    columns = {around.node(q).tensor.shape[-1].hint, node.tensor.shape[-1].hint}
    if k is None or not steps.scale > 0 or not columns <= set(_COLUMNS):
        return None
    masks = steps.mask_nodes
    kind = Attention(scale=steps.scale, causal=False, masking=steps.masking, empty_is_zero=False)
    mask = masks[-1].name if masks else None
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    found = replace(
        node,
        kind=kind,
        inputs=operands,
        origin=_call(operands, steps.scale),
        part_of=None,
        operators=tuple(dict.fromkeys((*product.operators, *shares.operators, *node.operators))),
    )
    return (*before, *(it for it in masks if it.name not in steps.known), found)


def _operands_of(around: Surroundings, node: Node) -> Node | None:
    """The shares of a product of shares and values, row by row of each head."""
    if not isinstance(node.kind, Contract) or not isinstance(node.type, TensorType):
        return None
    lhs, rhs, out = node.kind.lhs, node.kind.rhs, node.kind.out
    batch = lhs[:-2]
    if not 2 <= len(lhs) <= 4 or rhs[:-2] != batch or out[:-2] != batch or node.type.rank < 2:
        return None
    is_product = rhs[-2] == lhs[-1] and out[-2:] == lhs[-2] + rhs[-1]
    return around.node(node.inputs[0]) if is_product and node.type.dtype is DType.F32 else None


def _scores_of(around: Surroundings, shares: Node) -> Node | None:
    """What the shares are the softmax of, over the last dimension."""
    if not isinstance(shares.kind, Pointwise) or len(shares.inputs) != 3:
        return None
    if str(shares.kind.expr) != "div(exp(sub(%0, %1)), %2)":
        return None
    scores, *totals = (around.node(name) for name in shares.inputs)
    for index, total in enumerate(totals):
        if total.kind != Project(index):
            return None
        source = around.node(total.inputs[0])
        if not isinstance(source.kind, Reduce) or source.kind.op is not Reduction.EXP_SUM:
            return None
        if source.inputs != (scores.name,) or source.kind.dims != (scores.tensor.rank - 1,):
            return None
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """What happens between a product and the softmax."""

    product: Node
    scale: float
    masking: Masking
    mask_nodes: tuple[Node, ...]
    """The mask last."""
    known: frozenset[str]
    """Those of them that are in the graph."""


def _steps_to_product(around: Surroundings, scores: Node) -> _Steps | None:
    """Scales, and at most one mask after all scales that it is added to; None of other steps."""
    scale, masking = 1.0, Masking.NONE
    masks: tuple[Node, ...] = ()
    known: frozenset[str] = frozenset()
    at = scores
    while isinstance(at.kind, Pointwise):
        step = _scaled(at.kind.expr)
        if step is not None:
            scale *= step
            at = around.node(at.inputs[0])
            continue
        found = _masked(around, at)
        if found is None or masks or (found[1] is Masking.ADD and scale != 1.0):
            return None
        at, masking, masks, known = found
    shape = scores.tensor.shape
    if not isinstance(at.kind, Contract) or at.tensor.shape != shape:
        return None
    return _Steps(product=at, scale=scale, masking=masking, mask_nodes=masks, known=known)


def _scaled(expr: Expr) -> float | None:
    """What the only operand is multiplied with; None where something else happens to it."""
    match expr:
        case Call("mul", (Operand(), Literal(value))) | Call("mul", (Literal(value), Operand())):
            return float(value)
        case Call("div", (Operand(), Literal(value))) if value:
            return 1.0 / float(value)
    return None


def _masked(
    around: Surroundings, node: Node
) -> tuple[Node, Masking, tuple[Node, ...], frozenset[str]] | None:
    """What a node masks, how, the nodes of the mask, and which of these are there already."""
    assert isinstance(node.kind, Pointwise)
    inputs = [around.node(name) for name in node.inputs]
    match node.kind.expr:
        case Call("where", (Operand(mask), Operand(kept), Literal(value))) if _is_never(value):
            own = inputs[mask]
            return inputs[kept], Masking.KEEP, (own,), frozenset((own.name,))
        case Call("where", (Operand(mask), Literal(value), Operand(kept))) if _is_never(value):
            own = inputs[mask]
            expr = Call(
                "where",
                (
                    Operand(0, DType.BOOL),
                    *(Literal(value=it, dtype=DType.BOOL) for it in (False, True)),
                ),
                DType.BOOL,
            )
            kept_mask = replace(
                own,
                name=around.fresh(own.name),
                kind=Pointwise(expr),
                inputs=(own.name,),
                origin=None,
                part_of=None,
                operators=(),
            )
            return inputs[kept], Masking.KEEP, (kept_mask,), frozenset()
        case Call("add", (Operand(first), Operand(second))) if len(inputs) == 2:
            for data, mask in ((first, second), (second, first)):
                own = inputs[mask]
                if _leads_to_product(around, inputs[data]):
                    is_like = isinstance(own.type, TensorType) and own.type.dtype is DType.F32
                    names = frozenset((own.name,))
                    return (inputs[data], Masking.ADD, (own,), names) if is_like else None
    return None


def _is_never(value: object) -> bool:
    return value == float("-inf")


def _leads_to_product(around: Surroundings, node: Node) -> bool:
    while isinstance(node.kind, Pointwise) and _scaled(node.kind.expr) is not None:
        node = around.node(node.inputs[0])
    return isinstance(node.kind, Contract)


def _is_alone(around: Surroundings, shares: Node) -> bool:
    """Whether nobody else reads the shares: they would be computed all the same."""
    return around.readers(shares.name) == 1 and around.unseen(shares.name)


def _keys(around: Surroundings, product: Node) -> tuple[str | None, tuple[Node, ...]]:
    """The keys of a product with them, a row each, and what makes them; None of other products."""
    assert isinstance(product.kind, Contract)
    lhs, rhs, out = product.kind.lhs, product.kind.rhs, product.kind.out
    if rhs[:-2] != lhs[:-2] or out[:-2] != lhs[:-2] or out[-2] != lhs[-2]:
        return None, ()
    own = around.node(product.inputs[1])
    if rhs[-2:] == out[-1] + lhs[-1]:
        return own.name, ()
    if rhs[-2:] != lhs[-1] + out[-1]:
        return None, ()
    rank = own.tensor.rank
    turn = Permute((*range(rank - 2), rank - 1, rank - 2))
    if own.kind == View(turn):
        return own.inputs[0], ()
    shape = (*own.tensor.shape[:-2], own.tensor.shape[-1], own.tensor.shape[-2])
    turned = replace(
        own,
        name=around.fresh(own.name),
        kind=View(turn),
        type=replace(own.tensor, shape=shape),
        inputs=(own.name,),
        origin=None,
        part_of=None,
        operators=(),
    )
    return turned.name, (turned,)


def _call(operands: tuple[str, ...], scale: float) -> AtenCall | None:
    """The call of PyTorch that computes the same: with a mask it gives rows without keys zeros."""
    return call_of_attention(operands, scale) if len(operands) == 3 else None


_RULES = (Rule(name="attention written by hand", match=_attention_by_hand),)


def with_attention(graph: Graph, machine: Machine) -> Graph:
    """The graph with nodes for attention that several nodes stood for."""
    return graph if machine.attention is None else apply(_RULES, graph).graph
