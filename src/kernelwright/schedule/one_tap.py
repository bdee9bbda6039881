"""Products that were convolutions of one tap, and are faster as convolutions.

A product of float32 numbers is exact to float32. A convolution is as accurate as cuDNN's, which
mostly takes TF32: one product of fp16 numbers where the other family needs three.
"""

from collections.abc import Mapping

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Conv, Pointwise
from kernelwright.machine import Machine
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_or_library import forecast
from kernelwright.schedule.product_or_library import product_seconds, why_no_product


def one_tap_products(graph: Graph) -> dict[str, Node]:
    """Products of a rewritten graph that the user called as convolutions, by the result of the
    call."""
    return {
        node.part_of.result: node
        for node in graph.nodes
        if isinstance(node.kind, Contract)
        and node.part_of is not None
        and isinstance(node.part_of.kind, Conv)
        and why_no_product(node, graph) is None
    }


def faster_as_convolutions(
    products: Mapping[str, Node],
    graph: Graph,
    convolved: Graph,
    names: Mapping[str, str],
    machine: Machine,
) -> frozenset[str]:
    """The calls whose product takes longer than the convolution, by the model of both.

    `products`: those of `graph`. `convolved`: the graph with convolutions instead, under `names`.
    """
    found, nodes = set(), {node.name: node for node in convolved.nodes}
    for result, product in products.items():
        convolution = _convolution_of(names[result], nodes)
        times = None if convolution is None else forecast(convolution, convolved, machine)
        if times and times.ours < _seconds(product, graph, machine):
            found.add(result)
    return frozenset(found)


def _seconds(product: Node, graph: Graph, machine: Machine) -> float:
    found = product_seconds(product, graph, machine)
    return found.ours * (conv_rates(machine).one_tap if found.on_cuda_cores else 1.0)


def _convolution_of(name: str, nodes: Mapping[str, Node]) -> Node | None:
    """The convolution of a call: its node, or the one whose results get the bias there."""
    node = nodes.get(name)
    if node is not None and isinstance(node.kind, Pointwise):
        node = next((nodes[it] for it in node.inputs if isinstance(nodes[it].kind, Conv)), None)
    return node if node is not None and isinstance(node.kind, Conv) else None
