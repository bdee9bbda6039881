"""Transposed operands, for kernels that read neighbours together.

The rows of a norm over channels lie apart in what a convolution writes, and the planes of a
convolution with a filter for each channel lie apart in what a product writes. Both have fast
variants for dense operands only. Such an operand is copied in tiles first, once for all its
readers: of 77 MB general variants took 670 and 1,800 us, fast ones 20 and 33. What was widened to
fp32 is copied before that, in half the bytes, and widened by its readers.

So is the mask of an attention, as a user's `contiguous` has it, which says nothing else in a graph:
PyTorch's fused kernels refuse any other, and without them a call of CoAtNet's took twice as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.attention import Attention
from kernelwright.ir.editing import drop_unread
from kernelwright.ir.graph import Graph, Node, rename_inputs, widens
from kernelwright.ir.kinds import Pointwise, Reduce, Unsqueeze, View, Window
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.types import TensorType
from kernelwright.lower.layouts import relayout
from kernelwright.machine import Machine

_MASK = 3
"""Place of the mask among what an attention reads."""
_MOST_STEPS = 3
"""Steps on single elements between an operand and the reduction of its rows."""


def with_dense_operands(graph: Graph, machine: Machine) -> Graph:
    """The graph with dense copies of what kernels of rows and of windows read transposed."""
    users = graph.users()
    found = [
        node
        for node in graph.nodes
        if isinstance(node.kind, View)
        and (_is_turned_mask(node, graph, users) or _is_large_operand(node, graph, users, machine))
    ]
    if not found:
        return graph
    taken = {node.name for node in graph.nodes}
    names = {node.name: fresh_name(f"{node.name}_dense", taken) for node in found}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.kind, Pointwise | Reduce | Window | Attention):
            node = rename_inputs(node, names)
        nodes.append(node)
        if node.name in names:
            nodes += _dense(node, names[node.name], graph, taken)
    return drop_unread(replace(graph, nodes=tuple(nodes)))


def _dense(view: Node, name: str, graph: Graph, taken: set[str]) -> list[Node]:
    """The nodes that end in a row-major copy of a view's value."""
    views = [view]
    while isinstance((cast := graph[views[-1].inputs[0]]).kind, View):
        views.append(cast)
    if not widens(cast, graph.__getitem__):
        return [relayout(name, view, view)]
    last = graph[cast.inputs[0]]
    nodes: list[Node] = []
    for step in reversed(views):
        kind = replace(step.tensor, dtype=last.tensor.dtype)
        made = fresh_name(f"{step.name}_narrow", taken)
        last = replace(step, name=made, type=kind, inputs=(last.name,))
        nodes.append(last)
    dense = relayout(fresh_name(f"{name}_narrow", taken), last, view)
    widened = replace(cast, name=name, type=replace(view.tensor, layout=None), inputs=(dense.name,))
    return [*nodes, dense, widened]


def _is_large_operand(
    node: Node, graph: Graph, users: Mapping[str, Sequence[str]], machine: Machine
) -> bool:
    return (
        node.tensor.bytes_hint >= machine.launches.transposed_bytes
        and node.tensor.is_transposed
        and _is_whole(node, graph)
        and _wants_dense(node, graph, users)
    )


def _is_turned_mask(node: Node, graph: Graph, users: Mapping[str, Sequence[str]]) -> bool:
    """Whether attentions alone read it, as their mask, along another dimension than its last."""
    readers = [graph[name] for name in users[node.name]]
    are_attentions = bool(readers) and all(
        isinstance(it.kind, Attention) and it.inputs.index(node.name) == _MASK for it in readers
    )
    if not are_attentions:
        return False
    # Layouts are not followed through dimensions that are new; those in front change nothing.
    while isinstance(node.kind, View) and node.kind.map == Unsqueeze(0):
        node = graph[node.inputs[0]]
    return isinstance(node.type, TensorType) and node.type.is_transposed


def _is_whole(node: Node, graph: Graph) -> bool:
    """Whether a view has the elements of the value that it is of, each once."""
    elements = node.tensor.numel_hint
    while isinstance(node.kind, View):
        node = graph[node.inputs[0]]
    return isinstance(node.type, TensorType) and node.tensor.numel_hint == elements


def _wants_dense(node: Node, graph: Graph, users: Mapping[str, Sequence[str]]) -> bool:
    readers = [graph[name] for name in users[node.name]]
    widened = {it.name for it in readers if widens(it, graph.__getitem__)}
    pooled = [*readers, *(graph[name] for it in widened for name in users[it])]
    if any(isinstance(it.kind, Window) and it.inputs[0] in {node.name, *widened} for it in pooled):
        return True
    # Totals alone are made in one pass; rows that are read for them and again are held on chip.
    is_read_again = any(_is_step_on(it, node) for it in readers)
    return is_read_again and _is_reduced(node, graph, users, _MOST_STEPS)


def _is_step_on(reader: Node, node: Node) -> bool:
    return isinstance(reader.kind, Pointwise) and reader.tensor.shape == node.tensor.shape


def _is_reduced(node: Node, graph: Graph, users: Mapping[str, Sequence[str]], steps: int) -> bool:
    """Whether rows of the value, after so many steps at most, are reduced."""
    for name in users[node.name]:
        reader = graph[name]
        if isinstance(reader.kind, Reduce):
            return True
        if steps and _is_step_on(reader, node) and _is_reduced(reader, graph, users, steps - 1):
            return True
    return False
