"""Cheap steps with several readers are computed where they are read, not written and read again.

A step that reads one tensor of its own size costs each further reader no more than the bytes that
it would read anyway: what is saved is a kernel, or the result that it would have written.
"""

from dataclasses import replace

from kernelwright.ir.expr import operations
from kernelwright.ir.graph import (
    Contract,
    Graph,
    Node,
    Pointwise,
    Reduce,
    Scan,
    Window,
    rename_inputs,
)
from kernelwright.ir.types import TensorType

_CHEAP = 4
"""Operations of a step that is repeated."""
_LONGEST_CHAIN = 16
"""Operations, those of repeated steps in front counted."""


def with_cheap_copies(graph: Graph) -> Graph:
    """The graph with such a step once for every reader; the values are the same."""
    nodes = list(graph.nodes)
    fixed = {*graph.results, *graph.readers_of_mutable()}
    fixed |= _epilogues(graph)
    lengths = _chain_lengths(graph)
    taken = {node.name for node in nodes}
    for at in range(len(nodes) - 1, -1, -1):
        node = nodes[at]
        readers = [n for n in range(at + 1, len(nodes)) if node.name in nodes[n].inputs]
        short = lengths.get(node.name, 0) <= _LONGEST_CHAIN
        if node.name in fixed or len(readers) < 2 or not short:
            continue
        known = {item.name: item for item in nodes}
        if not _is_cheap(node, known) or not all(_can_compute(nodes[n]) for n in readers):
            continue
        copies = []
        for number, reader in enumerate(readers[1:], start=2):
            name = _fresh(f"{node.name}_copy{number}", taken)
            copies.append(replace(node, name=name))
            nodes[reader] = rename_inputs(nodes[reader], {node.name: name})
        nodes[at + 1 : at + 1] = copies
    return replace(graph, nodes=tuple(nodes))


def _is_cheap(node: Node, known: dict[str, Node]) -> bool:
    if not isinstance(node.kind, Pointwise) or operations(node.kind.expr) > _CHEAP:
        return False
    sources = (known[name].type for name in node.inputs)
    shapes = [kind.shape for kind in sources if isinstance(kind, TensorType)]
    return node.tensor.numel_hint > 1 and shapes.count(node.tensor.shape) == 1


def _can_compute(reader: Node) -> bool:
    """Whether the reader's kernel can compute what it reads on the way."""
    return isinstance(reader.kind, Pointwise | Reduce | Scan | Window)


def _epilogues(graph: Graph) -> set[str]:
    """What a product, a scan or a pooling makes, and steps on it: these join them as they are."""
    found: set[str] = set()
    shapes = {
        node.name: node.type.shape for node in graph.nodes if isinstance(node.type, TensorType)
    }
    for node in graph.nodes:
        match node.kind:
            case Contract() | Scan() | Window():
                found.add(node.name)
            case Pointwise():
                same = (name for name in node.inputs if shapes.get(name) == node.tensor.shape)
                if not found.isdisjoint(same):
                    found.add(node.name)
    return found


def _chain_lengths(graph: Graph) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.kind, Pointwise):
            before = sum(lengths.get(name, 0) for name in node.inputs)
            lengths[node.name] = operations(node.kind.expr) + before
    return lengths


def _fresh(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name
