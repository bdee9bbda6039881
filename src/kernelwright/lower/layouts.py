"""Layouts of a whole graph, and copies that change the layout of a value."""

from dataclasses import replace

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Relayout
from kernelwright.ir.layouts import layout_of
from kernelwright.ir.types import TensorType


def with_layouts(graph: Graph) -> Graph:
    """The graph whose types have the layouts that follow from its nodes."""
    nodes: dict[str, Node] = {}
    for node in graph.nodes:
        nodes[node.name] = node
        if isinstance(node.type, TensorType):
            layout = layout_of(node, [nodes[name] for name in node.inputs])
            if layout != node.type.layout:
                nodes[node.name] = replace(node, type=node.type.with_layout(layout))
    return replace(graph, nodes=tuple(nodes.values()))


def relayout(name: str, source: Node, near: Node) -> Node:
    """A row-major copy of a node's value."""
    return Node(
        name=name,
        kind=Relayout(),
        type=source.tensor.with_layout(None),
        inputs=(source.name,),
        operators=("contiguous",),
        source=near.source,
    )
