"""Small gathers in the order in which they are read.

A table of biases by relative position has a row of heads for each position; attention reads a
matrix of positions for each head. Gathered from the table's columns they lie so, and no copy turns
them.
"""

from dataclasses import replace

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Gather, Permute, Reshape, View
from kernelwright.ir.library_calls import call_of_gather
from kernelwright.ir.types import TensorType
from kernelwright.lower.layouts import view_of
from kernelwright.lower.view_chains import chain_of, leaves
from kernelwright.machine import Machine
from kernelwright.rewrite.driver import Rule, apply
from kernelwright.rewrite.surroundings import Surroundings


def with_turned_gathers(graph: Graph, machine: Machine) -> Graph:
    """The graph in which small slices that come last in a gather and first in all that reads it
    come first in both."""
    most = machine.launches.transposed_bytes

    def match(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
        return _turned(around, node, most)

    if not any(isinstance(node.kind, Gather) for node in graph.nodes):
        return graph
    rule = Rule(name="slices gathered in the order of their readers", match=match)
    found = apply((rule,), _without_layouts(graph))
    return found.graph if found.applied else graph


def _without_layouts(graph: Graph) -> Graph:
    """The graph whose layouts do not have to follow from what is changed."""
    nodes = (
        replace(node, type=replace(node.type, layout=None))
        if isinstance(node.type, TensorType)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def _turned(around: Surroundings, node: Node, most: float) -> tuple[Node, ...] | None:
    if not isinstance(node.kind, View) or not isinstance(node.kind.map, Permute):
        return None
    chain = chain_of(around, node.name)
    gather = chain.source
    if gather.kind != Gather(0) or gather.tensor.bytes_hint >= most or not around.may_move(gather):
        return None
    if around.readers(gather.name) != 1 or not around.unseen(gather.name):
        return None
    source, index = (around.node(name) for name in gather.inputs)
    first = index.tensor.rank
    of_index, of_slices = (
        leaves(part for run in runs for part in run)
        for runs in (chain.whole[:first], chain.whole[first:])
    )
    seen = leaves(part for run in chain.dims for part in run)
    if seen != [*of_slices, *of_index] or not of_index or not of_slices:
        return None
    dims = (*range(1, source.tensor.rank), 0)
    shape = [source.tensor.shape[d] for d in dims]
    columns = view_of(around.fresh(source.name), source, Permute(dims), shape, gather)
    last = len(dims) - 1
    turned = replace(
        gather,
        name=around.fresh(gather.name),
        kind=Gather(last),
        type=TensorType(gather.tensor.dtype, (*shape[:last], *index.tensor.shape)),
        inputs=(columns.name, index.name),
        origin=call_of_gather(columns.name, last, index.name),
    )
    late = replace(node, kind=View(Reshape()), inputs=(turned.name,), origin=None)
    return (columns, turned, late)
