"""Attention becomes one node, which reads and writes tensors where others have them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import rename_call
from kernelwright.ir.expr import Call, Expr, Literal, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Expand, Pointwise, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType
from kernelwright.lower.attention_apart import wide_attention_apart
from kernelwright.lower.attention_by_hand import attention_by_hand
from kernelwright.lower.layouts import with_layouts, without_layouts
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


def _repeated_heads(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Heads of k and v that are the same for several neighbours are read where they lie, once.
    # In 16 bits the library's fastest kernels want them as the module repeated them.
    is_wide = isinstance(node.kind, Attention) and node.tensor.dtype is DType.F32
    return _heads_once(around, node) if is_wide else None


def _heads_once(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    if not isinstance(node.kind, Attention) or node.tensor.rank != 4 or node.kind.order:
        return None
    made: list[Node] = []
    names: dict[str, str] = {}
    for name in node.inputs[1:3]:
        once = _without_repeats(around, chain_of(around, name))
        if once is None:
            return None
        views = arranged(around, *once)
        made += views
        names[name] = views[-1].name if views else once[0].name
    new = _reading(node, names)
    call = new.origin
    if call is not None:
        others = (it for it in call.kwargs if it[0] != "enable_gqa")
        call = replace(call, kwargs=(*others, ("enable_gqa", True)))
    return (*made, replace(new, origin=call))


def _without_repeats(
    around: Surroundings, chain: Chain
) -> tuple[Node, list[Parts], list[Parts]] | None:
    """What an operand of four dimensions repeats for neighbouring heads, and its dimensions."""
    repeated = chain.source
    if repeated.kind != View(Expand()) or len(chain.dims) != 4 or not around.may_move(repeated):
        return None
    source = around.node(repeated.inputs[0])
    ahead = len(chain.whole) - source.tensor.rank
    sizes = [*[ONE] * ahead, *source.tensor.shape]
    new = [[leaf for leaf in leaves(run)] for run, size in zip(chain.whole, sizes, strict=True)
           if size == ONE]  # fmt: skip
    repeats = [leaf for run in new for leaf in run]
    heads = leaves(chain.dims[1])
    kept = [leaf for leaf in heads if leaf not in repeats]
    others = [leaf for at in (0, 2, 3) for leaf in leaves(chain.dims[at])]
    # Each head serves neighbours: what repeats it is inside of what tells heads apart.
    if not repeats or any(it in others for it in repeats) or heads[: len(kept)] != kept:
        return None
    whole = [[] if size == ONE else run for run, size in zip(chain.whole, sizes, strict=True)]
    batch, _, *columns = chain.dims
    return source, whole[ahead:], [batch, kept, *columns]


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
    """What the only operand is multiplied with; None where something else happens to it.

    Products of 16 bits are rounded; a scale is applied to scores in float32.
    """
    match _uncast(expr):
        case Call("mul", (first, Literal(value)) | (Literal(value), first)) if _is_operand(first):
            return float(value)
        case Call("div", (first, Literal(value))) if value and _is_operand(first):
            return 1.0 / float(value)
    return None


def _uncast(expr: Expr) -> Expr:
    """An expression before its result is converted to another type of floats."""
    match expr:
        case Call("cast", (inner,), dtype) if dtype.is_float and inner.dtype.is_float:
            return inner
    return expr


def _is_operand(expr: Expr) -> bool:
    return isinstance(_uncast(expr), Operand)


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
    Rule(name="heads that repeat read once", match=_repeated_heads),
    Rule(name="heads and batches of attention apart", match=_heads_of_batches),
    Rule(name="result of attention in one step", match=_result_in_one_step),
    Rule(name="attention of wide heads as two products", match=wide_attention_apart),
)


def with_heads_read_once(graph: Graph, takes: Callable[[Node], bool]) -> Graph:
    """The graph whose attention in 16 bits reads heads that repeat once, where kernels take it:
    `takes` says which of its nodes."""
    if not any(_is_short(node) for node in graph.nodes):
        return graph

    def match(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
        found = _heads_once(around, node) if _is_short(node) else None
        return found if found is not None and takes(node) else None

    return with_layouts(
        apply((Rule(name="heads that repeat read once", match=match),), graph).graph
    )


def _is_short(node: Node) -> bool:
    return isinstance(node.kind, Attention) and node.tensor.dtype is not DType.F32


def with_attention(graph: Graph, machine: Machine) -> Graph:
    """The graph with nodes for attention that several nodes stood for."""
    if machine.attention is None:
        return graph
    # Views in fewer steps may lie otherwise where dimensions have size 1.
    return with_layouts(apply(_RULES, without_layouts(graph)).graph)
