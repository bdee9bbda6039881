"""Calls that are not left to PyTorch because they cost the host more than the card.

Launches between two calls of PyTorch are one native call, which the host makes once. Where a
forward is a chain of short calls, the card waits for the host: a product of ours that takes a
little longer than the library's is gone before the next call would have come.
"""

from collections.abc import Iterator, Mapping

from kernelwright.ir.attention import Attention
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Concat, Contract, Conv, View
from kernelwright.machine import Machine
from kernelwright.schedule.attention_configs import library_seconds, sizes_of_node
from kernelwright.schedule.conv_or_library import sizes_of
from kernelwright.schedule.product_or_library import (
    ProductSeconds,
    product_seconds,
    why_no_product,
)

_CHAIN = 4
"""Products of a graph from which on the host's time for each of them is looked at."""
_CALLS_OF_TWO_LAYERS = 5
"""The host's time for two layers whose attention is the library's, over a call's: some of their
products are calls, too, and launches of ours lie between them."""


def ours_for_the_host(
    left: Mapping[str, str | None], graph: Graph, machine: Machine
) -> frozenset[str]:
    """Calls that take less time as kernels than the host needs for them: products that are left to
    the library, and tensors that are put side by side.

    `left`: the reason why a product is the library's, None for ours; other nodes say nothing.
    """
    products = [it for it in graph.nodes if it.name in left and _is_product(it, graph)]
    if len(products) < _CHAIN:
        return frozenset()
    times = {it.name: product_seconds(it, graph, machine) for it in products}
    if not _is_host_bound(times, graph, machine):
        return frozenset()
    rates = machine.library
    found = {
        name
        for name, it in times.items()
        if left[name] is not None and rates.margin * it.ours <= max(it.library, rates.cut_seconds)
    }
    small = rates.cut_seconds * machine.copy_bandwidth / 2
    found.update(
        node.name
        for node in graph.nodes
        if isinstance(node.kind, Concat) and node.tensor.bytes_hint < small
    )
    return frozenset(found)


def waits_for_host(graph: Graph, machine: Machine) -> bool:
    """Whether calls of the library for each attention would cost the host more than the card needs
    for all of a forward: it has few texts or short ones."""
    products = [it for it in graph.nodes if _is_product(it, graph)]
    if len(products) < _CHAIN:
        return False
    times = {it.name: product_seconds(it, graph, machine) for it in products}
    layers = sum(isinstance(it.kind, Attention) for it in graph.nodes)
    calls = _CALLS_OF_TWO_LAYERS * layers / 2
    return _card_seconds(times, graph, machine) < machine.library.cut_seconds * calls


def _is_product(node: Node, graph: Graph) -> bool:
    return isinstance(node.kind, Contract) and why_no_product(node, graph) is None


def _is_host_bound(times: Mapping[str, ProductSeconds], graph: Graph, machine: Machine) -> bool:
    """Whether the card would be done with a forward of the library's products before the host."""
    return _card_seconds(times, graph, machine) < machine.library.cut_seconds * len(times)


def _card_seconds(times: Mapping[str, ProductSeconds], graph: Graph, machine: Machine) -> float:
    """Seconds of the card for a forward with the library's products."""
    return sum(it.library for it in times.values()) + sum(_other_seconds(graph, machine))


def _other_seconds(graph: Graph, machine: Machine) -> Iterator[float]:
    """Least seconds of the card for each node that is no product."""
    for node in graph.nodes:
        if isinstance(node.kind, Conv):
            yield sizes_of(node, graph).flops / max(machine.flops.values())
        elif isinstance(node.kind, Attention) and machine.attention is not None:
            yield library_seconds(sizes_of_node(node, graph), machine)
        elif not isinstance(node.kind, Contract | View):
            yield _bytes(node) / machine.write_bandwidth


def _bytes(node: Node) -> int:
    return getattr(node.type, "bytes_hint", 0)
