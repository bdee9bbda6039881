"""Layouts of a whole graph: those of its views, and of what the library makes of channels-last
operands, follow from those of their operands."""

from dataclasses import replace

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Conv, Relayout, View
from kernelwright.ir.layouts import layout_of_view
from kernelwright.ir.types import Layout, TensorType

_SPATIAL = (2, 3)
"""Spatial dimensions of convolutions that have a memory format."""


def with_layouts(graph: Graph) -> Graph:
    """The graph whose types have these layouts."""
    nodes: dict[str, Node] = {}
    for node in graph.nodes:
        nodes[node.name] = node
        if isinstance(node.type, TensorType):
            layout = _layout(node, nodes)
            if layout != node.type.layout:
                nodes[node.name] = replace(node, type=node.type.with_layout(layout))
    return replace(graph, nodes=tuple(nodes.values()))


def _layout(node: Node, known: dict[str, Node]) -> Layout | None:
    match node.kind:
        case View(how):
            return layout_of_view(how, known[node.inputs[0]].tensor, node.tensor.shape)
        case Conv(rounding=None) if has_format(node):
            wanted = Layout.channels_last(node.tensor.rank)
            layouts = (node.tensor.layout, known[node.inputs[0]].tensor.layout)
            return wanted if wanted in layouts else None
    return None


def has_format(node: Node) -> bool:
    """Whether the node is a convolution that has a memory format."""
    conv = node.kind
    return (
        isinstance(conv, Conv)
        and len(conv.stride) in _SPATIAL
        and node.tensor.rank == len(conv.stride) + 2
    )


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
