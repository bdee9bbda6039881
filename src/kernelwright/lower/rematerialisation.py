"""Cheap steps with several readers are computed where they are read, not written and read again.

A step that reads one tensor of its own size costs each further reader no more than the bytes that
it would read anyway: what is saved is a kernel, or the result that it would have written.
"""

from dataclasses import replace

from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph, Node, made_of, rename_inputs
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Reduce, Scan, Window
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.types import TensorType

_JOINED = Contract | Reduce | Scan | Window
"""Steps on what these make, at its own size, are computed by the same kernel; so are those on what
convolutions of ours make."""
_CHEAP = 4
"""Operations of a step that is repeated."""
_LONGEST_CHAIN = 16
"""Operations, those of repeated steps in front counted."""


def with_cheap_copies(graph: Graph) -> Graph:
    """The graph with such a step once for every reader; the values are the same."""
    fixed = {*graph.results, *graph.readers_of_mutable()}
    # What these make, and steps on it: such steps join them as they are.
    anchors = (node.name for node in graph.nodes if _is_joined(node))
    fixed |= made_of(anchors, graph)
    lengths = _chain_lengths(graph)
    nodes = {node.name: node for node in graph.nodes}
    users = {name: list(readers) for name, readers in graph.users().items()}
    copies: dict[str, list[str]] = {}
    taken = set(nodes)
    for node in reversed(graph.nodes):
        short = lengths.get(node.name, 0) <= _LONGEST_CHAIN
        if node.name in fixed or not short or not _is_cheap(node, graph):
            continue
        readers = users[node.name]
        if len(readers) < 2 or not all(_can_compute(nodes[name]) for name in readers):
            continue
        made = copies[node.name] = []
        for number, reader in enumerate(readers[1:], start=2):
            name = fresh_name(f"{node.name}_copy{number}", taken)
            made.append(name)
            nodes[name] = replace(node, name=name)
            nodes[reader] = rename_inputs(nodes[reader], {node.name: name})
        for source in dict.fromkeys(node.inputs):
            at = users[source].index(node.name) + 1
            users[source][at:at] = made
    names = (it for node in graph.nodes for it in (node.name, *copies.get(node.name, ())))
    return replace(graph, nodes=tuple(nodes[name] for name in names))


def _is_joined(node: Node) -> bool:
    if isinstance(node.kind, Conv):
        return node.kind.rounding is not None
    return isinstance(node.kind, _JOINED)


def _is_cheap(node: Node, graph: Graph) -> bool:
    if not isinstance(node.kind, Pointwise) or operations(node.kind.expr) > _CHEAP:
        return False
    sources = (graph[name].type for name in node.inputs)
    shapes = [kind.shape for kind in sources if isinstance(kind, TensorType)]
    return node.tensor.numel_hint > 1 and shapes.count(node.tensor.shape) == 1


def _can_compute(reader: Node) -> bool:
    """Whether the reader's kernel can compute what it reads on the way."""
    return isinstance(reader.kind, Pointwise | Reduce | Scan | Window)


def _chain_lengths(graph: Graph) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.kind, Pointwise):
            before = sum(lengths.get(name, 0) for name in node.inputs)
            lengths[node.name] = operations(node.kind.expr) + before
    return lengths
