"""Layouts of a whole graph, and nodes that show or copy a value in another way."""

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Relayout, View, ViewMap
from kernelwright.ir.layouts import layout_of
from kernelwright.ir.types import Dim, TensorType


def with_layouts(graph: Graph) -> Graph:
    """The graph whose types have the layouts that follow from its nodes."""
    nodes: dict[str, Node] = {}
    for node in graph.nodes:
        nodes[node.name] = node
        if isinstance(node.type, TensorType):
            layout = layout_of(node, [nodes[name] for name in node.inputs])
            if layout != node.type.layout:
                nodes[node.name] = replace(node, type=replace(node.type, layout=layout))
    return replace(graph, nodes=tuple(nodes.values()))


def without_layouts(graph: Graph) -> Graph:
    """The graph whose types say nothing of how they lie."""
    return replace(graph, nodes=tuple(map(_without_layout, graph.nodes)))


def _without_layout(node: Node) -> Node:
    if not isinstance(node.type, TensorType) or node.type.layout is None:
        return node
    return replace(node, type=replace(node.type, layout=None))


def view_of(name: str, source: Node, how: ViewMap, shape: Sequence[Dim], near: Node) -> Node:
    """A view of a node's value."""
    kind = TensorType(source.tensor.dtype, tuple(shape))
    return Node(name=name, kind=View(how), type=kind, inputs=(source.name,), source=near.source)


def relayout(name: str, source: Node, near: Node) -> Node:
    """A row-major copy of a node's value."""
    return Node(
        name=name,
        kind=Relayout(),
        type=replace(source.tensor, layout=None),
        inputs=(source.name,),
        operators=("contiguous",),
        source=near.source,
    )
