"""Graphs in order again, after new nodes were put behind those that read them."""

from dataclasses import replace

from kernelwright.ir.editing import drop_unread
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Constant, Input, Parameter
from kernelwright.ir.spec import check


def checked(graph: Graph) -> Graph:
    """The graph in order again, without what nobody reads."""
    return check(drop_unread(_in_order(graph)))


def _in_order(graph: Graph) -> Graph:
    """Each node behind what it reads; the rest as it was."""
    leaves = [it for it in graph.nodes if isinstance(it.kind, Input | Parameter | Constant)]
    ordered = {it.name: it for it in leaves}
    for last in graph.nodes:
        waiting = [last]
        while waiting:
            node = waiting[-1]
            missing = [graph[name] for name in node.inputs if name not in ordered]
            if node.name in ordered or not missing:
                ordered.setdefault(node.name, node)
                waiting.pop()
            else:
                waiting += missing
    return replace(graph, nodes=tuple(ordered.values()))
