"""Convolutions on operands whose channels are neighbours in memory: what cuDNN computes on.

Given others, cuDNN turns its operand and its result on the way. We turn them where they are read
anyway, or not at all. PyTorch takes the format from the input; the weights follow.
"""

from math import prod

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Conv, Permute, Pointwise, Project, Reduce, Reshape, Squeeze, View
from kernelwright.ir.types import DType, TensorType
from kernelwright.lower.placed import by_place, from_last, placed
from kernelwright.lower.rematerialisation import with_cheap_copies
from kernelwright.machine import Machine

_SPATIAL = (2, 3)
"""Spatial dimensions of convolutions that have a memory format."""
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
    conv = _with_format(node)
    if conv is None or node.tensor.dtype not in _DTYPES:
        return False
    source = known[node.inputs[0]].tensor
    moved = source.bytes_hint + node.tensor.bytes_hint
    least = _least_channels(conv, node, machine) if source.dtype is DType.F32 else 2
    taps = prod(dim.hint for dim in known[node.inputs[1]].tensor.shape[2:])
    return (
        conv.groups == 1
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


def is_turned(node: Node, graph: Graph) -> bool:
    """Whether neighbours in the node's memory are known not to be along its last dimension."""
    return isinstance(node.type, TensorType) and _along(node, graph) != node.type.rank - 1


def _along(node: Node, graph: Graph) -> int:
    """The dimension along which neighbours in memory lie, as far as it is known."""
    last = node.tensor.rank - 1
    if _has_channels_last(node, graph):
        return 1
    if not isinstance(node.kind, View):
        return last
    source = graph[node.inputs[0]]
    along = _along(source, graph)
    match node.kind.map:
        case Permute(dims):
            return dims.index(along)
        case Squeeze(dims) if along not in dims:
            return along - sum(dim < along for dim in dims)
        case Reshape() if along not in (0, source.tensor.rank - 1):
            # Channels in groups, or groups as one: another shape makes a copy.
            return along + node.tensor.rank - source.tensor.rank
    return last


def _has_channels_last(node: Node, graph: Graph) -> bool:
    """Whether the node is the result of a convolution on channels-last operands."""
    return _with_format(node) is not None and _is_channels_last(graph[node.inputs[0]])


def _is_channels_last(node: Node) -> bool:
    match node.kind:
        case View(Permute(dims)):
            return dims == from_last(len(dims))
    return False


def _with_format(node: Node) -> Conv | None:
    """The convolution that the node is, if it is one that has a memory format."""
    conv = node.kind
    if not isinstance(conv, Conv) or len(conv.stride) not in _SPATIAL:
        return None
    return conv if node.tensor.rank == len(conv.stride) + 2 else None
