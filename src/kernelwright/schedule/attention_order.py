"""Attention that writes its result in the order of dimensions in which it is read."""

from collections.abc import Callable
from dataclasses import replace

from kernelwright.ir.attention import Attention
from kernelwright.ir.editing import Editor
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Permute, View


def with_orders(graph: Graph, takes: Callable[[Node], bool]) -> Graph:
    """The graph without permutations of what kernels of attention, which `takes` names, write."""
    editor = Editor(graph)
    changed = False
    for node in graph.nodes:
        if not isinstance(node.kind, Attention) or node.kind.order or editor.is_shown(node.name):
            continue
        readers = [editor.node(name) for name in editor.readers(node.name)]
        match readers:
            case [Node(kind=View(Permute(dims)))] if takes(node):
                turned = replace(
                    node,
                    name=readers[0].name,
                    kind=replace(node.kind, order=dims),
                    type=replace(readers[0].tensor, layout=None),
                    origin=None,
                )
                editor.replace(readers[0], (turned,))
                changed = True
    editor.drop_unread()
    return editor.graph() if changed else graph
