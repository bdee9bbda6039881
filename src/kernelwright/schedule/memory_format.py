"""Convolutions on operands whose channels are neighbours in memory: what cuDNN computes on.

Given others, cuDNN turns its operand and its result on the way. Where that costs more than to turn
them here, as measured on an H200, we do. PyTorch takes the format from the input; the weights
follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.calls import rename_call
from kernelwright.ir.expr import Operand
from kernelwright.ir.graph import (
    Graph,
    Node,
    Opaque,
    Permute,
    Pointwise,
    Reduce,
    View,
    rename_inputs,
)
from kernelwright.ir.plan import RowProgram
from kernelwright.ir.types import Dim, DType, TensorType, ValueType

_SPATIAL = {"conv2d": 2, "conv3d": 3, "conv_transpose2d": 2, "conv_transpose3d": 3}
"""Convolutions and their spatial dimensions."""
_GROUPS = {"conv2d": 6, "conv3d": 6, "conv_transpose2d": 6, "conv_transpose3d": 6}
"""Which argument the number of groups is."""
_DTYPES = (DType.F32, DType.F16, DType.BF16)
_VECTOR_BYTES = 16
_LEAST_BYTES = 16e6
"""Of the input and the result: below, a launch more costs what it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """A graph whose convolutions have the operands they are fastest on."""

    graph: Graph
    turning: frozenset[str]
    """Copies of one memory format in another."""


def faster_on_channels_last(graph: Graph) -> frozenset[str]:
    """The convolutions of a graph that such operands pay for."""
    known = {node.name: node for node in graph.nodes}
    return frozenset(
        name for name, node in known.items() if _may_have(node, known) and _turns_free(node, graph)
    )


def with_channels_last(graph: Graph, convolutions: frozenset[str]) -> Formatted:
    """The graph with such operands for the convolutions of these names; the values are the same."""
    turning: set[str] = set()
    nodes: list[Node] = []
    known: dict[str, Node] = {}
    taken = {node.name for node in graph.nodes}
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        made: tuple[Node, ...] = (rename_inputs(node, renamed),)
        if node.name in convolutions and _has_format(node) and node.name not in graph.results:
            made = _turned(made[0], known, taken)
            if _is_reduced_over_channels(node.name, graph):
                made = made[:-1]
            turning |= {item.name for item in made if isinstance(item.kind, Pointwise)}
            renamed[node.name] = made[-1].name
        nodes += made
        known |= {item.name: item for item in made}
    return Formatted(graph=replace(graph, nodes=tuple(nodes)), turning=frozenset(turning))


def is_turned(node: Node, graph: Graph) -> bool:
    """Whether neighbours in the node's memory are known not to be along its last dimension."""
    if has_channels_last(node, graph):
        return True
    while isinstance(node.kind, View):
        match node.kind.map:
            case Permute(dims) if dims[-1] != len(dims) - 1:
                return True
        node = graph[node.inputs[0]]
    return False


def has_channels_last(node: Node, graph: Graph) -> bool:
    """Whether the node is the result of a convolution on channels-last operands."""
    return _has_format(node) and _is_channels_last(graph[node.inputs[0]])


def in_memory_order(
    program: RowProgram, inputs: Sequence[ValueType]
) -> tuple[RowProgram, tuple[ValueType, ...]]:
    """A program on channels-last operands as one of their shape in memory, for a model."""
    rank = len(program.shape)
    order = _to_last(rank)

    def moved(kind: ValueType) -> ValueType:
        if not isinstance(kind, TensorType):
            return kind
        padded = (Dim.static(1),) * (rank - kind.rank) + kind.shape
        return TensorType(kind.dtype, tuple(padded[dim] for dim in order))

    shape = tuple(program.shape[dim] for dim in order)
    dims = tuple(sorted(order.index(dim) for dim in program.dims))
    return replace(program, shape=shape, dims=dims), tuple(moved(kind) for kind in inputs)


def _is_reduced_over_channels(name: str, graph: Graph) -> bool:
    """Whether all that becomes of the value is totals over its channels, element by element."""
    users = graph.users()
    waiting = [name]
    while waiting:
        node = graph[waiting.pop()]
        if node.name in graph.results or not users[node.name]:
            return False
        for reader in (graph[user] for user in users[node.name]):
            match reader.kind:
                case Reduce(_, (1,)):
                    continue
                case Pointwise() if reader.tensor.shape == node.tensor.shape:
                    others = [graph[other] for other in reader.inputs if other != node.name]
                    if any(it.type == node.type for it in others):
                        return False
                    waiting.append(reader.name)
                case _:
                    return False
    return True


def _has_format(node: Node) -> bool:
    """Whether it is a convolution that has a memory format."""
    call = node.origin
    if not isinstance(node.kind, Opaque) or call is None or not isinstance(node.type, TensorType):
        return False
    spatial = _SPATIAL.get(_operator(node))
    return spatial is not None and node.type.rank == spatial + 2


def _operator(node: Node) -> str:
    return "" if node.origin is None else node.origin.target.split(".")[1]


def _is_channels_last(node: Node) -> bool:
    match node.kind:
        case View(Permute(dims)):
            return dims == _from_last(len(dims))
    return False


def _may_have(node: Node, known: dict[str, Node]) -> bool:
    if not _has_format(node) or node.tensor.dtype not in _DTYPES:
        return False
    assert node.origin is not None
    at = _GROUPS[_operator(node)]
    groups = node.origin.args[at] if len(node.origin.args) > at else 1
    source = known[node.inputs[0]].tensor
    moved = source.bytes_hint + node.tensor.bytes_hint
    return groups == 1 and source.shape[1].hint > 1 and moved >= _LEAST_BYTES


def _turns_free(node: Node, graph: Graph) -> bool:
    """Whether turning the result costs nothing: totals over channels need none, and a result that
    is no whole vectors is otherwise read an element at a time by the step that turns it."""
    if _is_reduced_over_channels(node.name, graph):
        return True
    places = prod(dim.hint for dim in node.tensor.shape[2:])
    readers = [graph[name] for name in graph.users()[node.name]]
    return places * node.tensor.dtype.itemsize % _VECTOR_BYTES != 0 and all(
        _ends_in_steps(reader, graph) for reader in readers
    )


def _ends_in_steps(node: Node, graph: Graph) -> bool:
    """Whether the node and what becomes of it are computed element by element."""
    readers = (graph[name] for name in graph.users()[node.name])
    return isinstance(node.kind, Pointwise) and all(_ends_in_steps(it, graph) for it in readers)


def _to_last(rank: int) -> tuple[int, ...]:
    """The order of dimensions in memory."""
    return (0, *range(2, rank), 1)


def _from_last(rank: int) -> tuple[int, ...]:
    """The order in which the memory's dimensions are seen."""
    return (0, rank - 1, *range(1, rank - 1))


def _turned(node: Node, known: dict[str, Node], taken: set[str]) -> tuple[Node, ...]:
    """The convolution on channels last, and its result as PyTorch would have it."""
    source = known[node.inputs[0]]
    made: list[Node] = []
    if not _is_channels_last(source):
        order = _to_last(source.tensor.rank)
        shape = tuple(source.tensor.shape[dim] for dim in order)
        kind = TensorType(source.tensor.dtype, shape)
        stem = source.name
        seen = Node(
            name=_fresh(f"{stem}_by_place", taken),
            kind=View(Permute(order)),
            type=kind,
            inputs=(source.name,),
            source=node.source,
        )
        copy = _copy(_fresh(f"{stem}_channels_last", taken), seen, node)
        source = Node(
            name=_fresh(f"{stem}_turned", taken),
            kind=View(Permute(_from_last(len(order)))),
            type=source.type,
            inputs=(copy.name,),
            source=node.source,
        )
        made += [seen, copy, source]
    names = {node.inputs[0]: source.name}
    assert node.origin is not None
    call = rename_call(node.origin, names)
    made.append(replace(node, inputs=call.refs, origin=call))
    made.append(_copy(_fresh(f"{node.name}_channels_first", taken), made[-1], node))
    return tuple(made)


def _copy(name: str, source: Node, near: Node) -> Node:
    return Node(
        name=name,
        kind=Pointwise(Operand(0, source.tensor.dtype)),
        type=source.type,
        inputs=(source.name,),
        operators=("contiguous",),
        source=near.source,
    )


def _fresh(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name
