"""Reshapes that have to copy: our copy is a kernel, PyTorch's a call that cuts a native one in two.

PyTorch copies element by element where nothing is a run: three times as long as the bytes take
(docs/measured/networks.md).
"""

from dataclasses import replace

from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import Input, Parameter, Pointwise, Relayout, Reshape, View
from kernelwright.ir.layouts import has_to_copy
from kernelwright.ir.library_calls import LINEAR
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.types import TensorType
from kernelwright.lower.layouts import relayout
from kernelwright.machine import Machine


def with_copied_reshapes(graph: Graph, machine: Machine) -> Graph:
    """The graph in which what a reshape would copy is dense before it."""
    taken = {node.name for node in graph.nodes}
    dense: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if _copies(node, graph, machine):
            (name,) = node.inputs
            if name not in dense:
                dense[name] = fresh_name(f"{name}_dense", taken)
                nodes.append(relayout(dense[name], graph[name], node))
            node = rename_inputs(node, dense)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if dense else graph


def _copies(node: Node, graph: Graph, machine: Machine) -> bool:
    if not isinstance(node.kind, View) or not isinstance(node.kind.map, Reshape):
        return False
    source = graph[node.inputs[0]].type
    assert isinstance(source, TensorType)
    is_large = source.bytes_hint >= machine.launches.transposed_bytes
    return is_large and has_to_copy(source, node.tensor.shape) and _is_known(node, graph)


def _is_known(node: Node, graph: Graph) -> bool:
    """Whether the value that is reshaped lies in memory as its type says: the library gives heads
    of an attention side by side, whatever their order in the shape."""
    while isinstance(node.kind, View):
        node = graph[node.inputs[0]]
    is_linear = node.origin is not None and node.origin.target == LINEAR
    return is_linear or isinstance(node.kind, Input | Parameter | Pointwise | Relayout)
