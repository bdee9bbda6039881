"""Attention becomes one node, which reads and writes tensors where others have them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import rename_call
from kernelwright.ir.expr import Call, Expr, Literal, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Pointwise, View
from kernelwright.ir.types import Dim
from kernelwright.lower.attention_apart import wide_attention_apart
from kernelwright.lower.attention_by_hand import attention_by_hand
from kernelwright.lower.view_chains import Chain, Part, Parts, arranged, chain_of, leaves, split
from kernelwright.machine import Machine
from kernelwright.rewrite.driver import Rule, apply
from kernelwright.rewrite.surroundings import Surroundings


def _operand_in_one_step(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Dimensions that are joined, permuted and cut again need only be permuted: nothing is copied.
    if not isinstance(node.kind, Attention):
        return None
    for name in node.inputs:
        chain = chain_of(around, name)
        if chain.joins or not chain.views:
            continue
        views = arranged(around, chain.source, chain.whole, chain.dims)
        if len(views) < len(chain.views):
            new = views[-1] if views else chain.source
            return (*views, _reading(node, {name: new.name}))
    return None


def _result_in_one_step(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # The same for what is made of its result: it is written in the order in which it is read.
    if not isinstance(node.kind, View):
        return None
    chain = chain_of(around, node.name)
    if not isinstance(chain.source.kind, Attention):
        return None
    views = arranged(around, chain.source, chain.whole, chain.dims)
    if not 0 < len(views) < len(chain.views):
        return None
    return (*views[:-1], replace(node, kind=views[-1].kind, inputs=views[-1].inputs, origin=None))


def _reading(node: Node, names: Mapping[str, str]) -> Node:
    """The node with other operands of the same values."""
    call = node.origin and rename_call(node.origin, names)
    return replace(node, inputs=tuple(names.get(it, it) for it in node.inputs), origin=call)


def _heads_of_batches(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Heads and batches that were joined for a batched product are two dimensions of attention.
    if not isinstance(node.kind, Attention) or node.tensor.rank != 3 or node.kind.order:
        return None
    chains = [chain_of(around, name) for name in node.inputs]
    if any(len(chain.dims) != 3 for chain in chains[:3]):
        return None
    joined = next((it for it in chains[:3] if len(leaves(it.dims[0])) == 2), None)
    if joined is None:
        return None
    sizes = [leaf.size for leaf in leaves(joined.dims[0])]
    made: list[Node] = []
    names: dict[str, str] = {}
    for name, chain in zip(node.inputs, chains, strict=True):
        dims = _with_heads(chain, sizes)
        if dims is None:
            return None
        views = arranged(around, chain.source, chain.whole, dims)
        made += views
        names[name] = views[-1].name if views else chain.source.name
    rows, width = ([Part(size)] for size in node.tensor.shape[1:])
    batch = [Part(size) for size in sizes]
    attended = replace(
        _reading(node, names),
        name=around.fresh(node.name),
        type=replace(node.tensor, shape=(*sizes, *node.tensor.shape[1:])),
    )
    whole = [*([part] for part in batch), rows, width]
    *joined_views, last = arranged(around, attended, whole, [batch, rows, width])
    return (*made, attended, *joined_views, replace(last, name=node.name, type=node.type))


def _scale_of_operand(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Products are scaled as their factors are.
    if not isinstance(node.kind, Attention) or node.kind.scale is None:
        return None
    if node.origin is not None and len(set(node.inputs)) < len(node.inputs):
        return None
    for at, name in enumerate(node.inputs[:2]):
        chain = chain_of(around, name)
        scaled = chain.source
        number = _factor(scaled.kind.expr) if isinstance(scaled.kind, Pointwise) else None
        if number is None or not number > 0 or not around.may_move(scaled):
            continue
        source = around.node(scaled.inputs[0])
        if source.type != scaled.type:
            continue
        views = arranged(around, source, chain.whole, chain.dims)
        inputs = list(node.inputs)
        inputs[at] = views[-1].name if views else source.name
        scale = node.kind.scale * number
        return (*views, _scaled(node, inputs, scale))
    return None


def _factor(expr: Expr) -> float | None:
    """What the only operand is multiplied with; None where something else happens to it."""
    match expr:
        case Call("mul", (Operand(), Literal(value))) | Call("mul", (Literal(value), Operand())):
            return float(value)
        case Call("div", (Operand(), Literal(value))) if value:
            return 1.0 / float(value)
    return None


def _scaled(node: Node, inputs: Sequence[str], scale: float) -> Node:
    """The node with other operands and another scale."""
    assert isinstance(node.kind, Attention)
    call = node.origin
    if call is not None:
        call = rename_call(call, dict(zip(node.inputs, inputs, strict=True)))
        others = tuple(it for it in call.kwargs if it[0] != "scale")
        call = replace(call, kwargs=(*others, ("scale", scale)))
    return replace(node, kind=replace(node.kind, scale=scale), inputs=tuple(inputs), origin=call)


def _with_heads(chain: Chain, sizes: Sequence[Dim]) -> list[Parts] | None:
    """The dimensions of an operand whose first one is cut into batch and head."""
    if len(chain.dims) < 3:
        return chain.dims
    first, *others = chain.dims
    pair = split(first, sizes) if first else [[], []]
    return None if pair is None else [*pair, *others]


_RULES = (
    Rule(name="attention written by hand", match=attention_by_hand),
    Rule(name="operand of attention in one step", match=_operand_in_one_step),
    Rule(name="scale of an operand of attention", match=_scale_of_operand),
    Rule(name="heads and batches of attention apart", match=_heads_of_batches),
    Rule(name="result of attention in one step", match=_result_in_one_step),
    Rule(name="attention of wide heads as two products", match=wide_attention_apart),
)


def with_attention(graph: Graph, machine: Machine) -> Graph:
    """The graph with nodes for attention that several nodes stood for."""
    return graph if machine.attention is None else apply(_RULES, graph).graph
