"""Convolutions on operands whose channels are neighbours in memory: what cuDNN computes on.

Given others, cuDNN turns its operand and its result on the way. We turn them where they are read
anyway, or not at all. PyTorch takes the format from the input; the weights follow.
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Conv, Pointwise, Project, Reduce
from kernelwright.ir.layouts import has_memory_format
from kernelwright.ir.types import DType
from kernelwright.lower.placed import by_place, placed
from kernelwright.lower.rematerialisation import with_cheap_copies
from kernelwright.machine import Machine

_DTYPES = (DType.F32, DType.F16, DType.BF16)


def faster_on_channels_last(graph: Graph, machine: Machine) -> frozenset[str]:
    """The convolutions of a graph that such operands pay for."""
    known = {node.name: node for node in graph.nodes}
    found = [
        name
        for name, node in known.items()
        if name not in graph.results and _pays(node, known, machine)
    ]
    if not found:
        return frozenset()
    if not any(_is_total_over_channels(node, graph) for node in graph.nodes):
        return frozenset(found)
    repeated = with_cheap_copies(graph)
    return frozenset(name for name in found if _is_read_well(name, repeated))


def _is_read_well(convolution: str, graph: Graph) -> bool:
    """Whether what reads the result by place gains by it."""
    users = graph.users()
    inside = by_place(graph, {convolution}, placed(graph, {convolution}))
    size = graph[convolution].tensor.numel_hint

    def is_read_outside(name: str) -> bool:
        """Whether a step of the convolution's size reads it in the usual order."""
        readers = [graph[user] for user in users[name] if user not in inside]
        return any(
            isinstance(it.kind, Pointwise) and it.tensor.numel_hint == size for it in readers
        )

    # A softmax: it reads twice what rows hold once.
    totals = (name for name in inside if _is_total_over_channels(graph[name], graph))
    return not any(map(is_read_outside, totals))


def _is_total_over_channels(node: Node, graph: Graph) -> bool:
    if not isinstance(node.kind, Project):
        return False
    pair = graph[node.inputs[0]].kind
    return isinstance(pair, Reduce) and pair.dims == (1,)


def _pays(node: Node, known: dict[str, Node], machine: Machine) -> bool:
    conv = node.kind
    if not isinstance(conv, Conv) or node.tensor.dtype not in _DTYPES:
        return False
    source = known[node.inputs[0]].tensor
    moved = source.bytes_hint + node.tensor.bytes_hint
    least = _least_channels(conv, node, machine) if source.dtype is DType.F32 else 2
    taps = prod(dim.hint for dim in known[node.inputs[1]].tensor.shape[2:])
    return (
        has_memory_format(node)
        and conv.groups == 1
        and source.shape[1].hint >= least
        and moved >= machine.launches.stage_bytes
        and not (
            conv.transposed and len(conv.stride) == 3 and taps > machine.library.channels_last_taps
        )
    )


def _least_channels(conv: Conv, node: Node, machine: Machine) -> int:
    """Channels of a float32 input from which on channels-last operands are as accurate."""
    if conv.transposed:
        return 2
    rates = machine.library
    is_few = len(conv.stride) == 3 and node.tensor.shape[1].hint <= rates.channels_last_few_results
    return rates.channels_last_few if is_few else rates.channels_last_channels


def on_channels_last(graph: Graph, names: Collection[str]) -> Graph:
    """The graph whose nodes say that these convolutions are computed on such operands.

    At other sizes one of these names can be a product: that stays as it is.
    """

    def told(node: Node) -> Node:
        if not isinstance(node.kind, Conv) or node.name not in names:
            return node
        given = graph[node.inputs[0]]
        sizes = tuple(dim.hint for dim in given.tensor.shape)
        kind = replace(node.kind, channels_last=sizes)
        return replace(node, kind=kind, inputs=(*node.inputs, given.name))

    return replace(graph, nodes=tuple(map(told, graph.nodes)))


def is_on_channels_last(node: Node) -> bool:
    """Whether the node is a convolution on such an operand."""
    return isinstance(node.kind, Conv) and node.kind.channels_last is not None


def as_called(node: Node) -> Node:
    """A convolution on the operand of the user's call alone."""
    if not isinstance(node.kind, Conv) or node.kind.channels_last is None:
        return node
    kind = replace(node.kind, channels_last=None)
    return replace(node, kind=kind, inputs=node.inputs[:-1])
