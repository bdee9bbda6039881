"""Views that a loop makes of one value again and again."""

from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import View


def firsts_of_same(graph: Graph) -> dict[str, str]:
    """For each node the first one that has the same value, by the same views of one node."""
    known: dict[object, str] = {}
    found: dict[str, str] = {}
    for node in graph.nodes:
        found[node.name] = node.name
        if isinstance(node.kind, View):
            key = (node.kind, *(found[name] for name in node.inputs))
            found[node.name] = known.setdefault(key, node.name)
    return found
