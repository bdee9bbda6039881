"""Grouping without a reduction: a product or none, and every pointwise node that can join it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.ir.expr import (
    Accumulator,
    Call,
    Expr,
    Operand,
    has_coordinates,
    operations,
    transform,
    walk,
)
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Relayout
from kernelwright.ir.types import DType, TensorType, TupleType
from kernelwright.schedule.in_order import InOrder
from kernelwright.schedule.roles import Roles, roles

_CHEAP = 4
"""Operations that are worth recomputing for each element instead of a launch of their own."""
_LONGEST_EXPRESSION = 96
"""Operations, repetitions counted, above which a producer keeps a kernel of its own."""
_CONVOLVED = (DType.F32, DType.F16, DType.BF16)
"""Types of what becomes of a convolution in its kernel."""
_LONG = {
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh"), 1),
    **dict.fromkeys(("erf", "erfc", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2"), 1),
    **dict.fromkeys(("pow", "sigmoid", "sin", "sinh", "tan", "tanh"), 1),
    **dict.fromkeys(("elu", "gelu", "gelu_tanh", "silu"), 1),
    **{"log_sigmoid": 2, "mish": 3, "softplus": 2},
}
"""Long functions, and how many exponentials or logarithms each takes."""
_MOST_LONG = 3
"""Such functions of each element that a convolution's few warps compute while they store. Six took
3.8 ms for 0.5 billion elements, which a kernel of their own reads and writes in 1.2 ms; four took
as long as that kernel."""
_SMALLER = 16
"""Times that a result has more elements than an operand that is there once for a channel."""
_MOST_INPUTS = 24
"""Inputs of a kernel: each adds 80 bytes to its parameters, of which CUDA 11 takes 4096."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementGroup:
    """Nodes that become one kernel; `root` is the one whose value is written."""

    root: Node
    members: tuple[Node, ...]
    """Root, absorbed pointwise nodes and anchor, users before what they use."""
    anchor: Node | None
    results: tuple[Node, ...] = ()
    """Nodes that take the root's several values out, in their order; none: it has one."""

    def in_order(self, graph: Graph) -> list[Node]:
        """Members in the order of the graph."""
        names = {node.name for node in self.members}
        return [graph[name] for name in sorted(names, key=graph.places().__getitem__)]


def element_groups(graph: Graph, ours: frozenset[str]) -> dict[str, ElementGroup]:
    """Groups by the name of their root, grown from the end of the graph backwards."""
    users = graph.users()
    fixed = set(graph.results) | graph.readers_of_mutable()
    fixed.update(node.name for node in graph.nodes if isinstance(node.kind, Relayout))
    groups: dict[str, ElementGroup] = {}
    taken: set[str] = set()
    producers = {name: graph[name] for name in ours - fixed}
    for root in reversed(graph.nodes):
        if root.name not in ours or root.name in taken:
            continue
        groups[root.name] = _grow(root, producers, users, graph)
        taken.update(node.name for node in groups[root.name].members)
    return groups


def _grow(
    root: Node,
    producers: Mapping[str, Node],
    users: Mapping[str, tuple[str, ...]],
    graph: Graph,
) -> ElementGroup:
    """Absorb every producer all of whose users are in the group and that is worth it."""
    if isinstance(root.kind, Contract | Conv):
        results = _results_of(root, users, graph)
        return ElementGroup(root=root, members=(*results, root), anchor=root, results=results)
    if isinstance(root.kind, Relayout):
        return ElementGroup(root=root, members=(root,), anchor=None)
    members = {root.name: root}
    copies = {root.name: 1}
    anchor: Node | None = None
    queue = InOrder(graph.places(), forwards=False)
    queue.add(root.inputs)
    for node in (producers[name] for name in queue if name in producers):
        readers = users[node.name]
        if any(name not in members or members[name] is anchor for name in readers):
            continue
        uses = sum(copies[name] * _occurrences(members[name], node) for name in readers)
        if isinstance(node.kind, Contract | Conv):
            # The tile of the product is the tile of the result: nothing may be broadcast.
            fits = node.tensor.shape == root.tensor.shape and _has_their_rows(node, members)
            if anchor is None and fits and not _is_read_in_phases(node, members, graph):
                anchor = members[node.name] = node
                queue.add(node.inputs)
        elif anchor is not None and _asks_where(anchor, node):
            continue
        elif _is_worth_joining(node, root, uses) and _input_count(members, node) <= _MOST_INPUTS:
            members[node.name], copies[node.name] = node, uses
            queue.add(node.inputs)
    for name in _steps_of_others(root, members, anchor, producers, users, graph):
        del members[name]
    return ElementGroup(root=root, members=tuple(members.values()), anchor=anchor)


def _steps_of_others(
    root: Node,
    members: Mapping[str, Node],
    anchor: Node | None,
    producers: Mapping[str, Node],
    users: Mapping[str, tuple[str, ...]],
    graph: Graph,
) -> set[str]:
    """Members that a second convolution computes where it stores its results, for no more bytes:
    it has their operands once for each channel, this kernel would have them for each element."""
    if anchor is None or not isinstance(anchor.kind, Conv):
        return set()
    chains: dict[str, list[Node]] = {}
    """By each member that is made of a convolution and small tensors alone: it comes last."""
    for node in sorted(members.values(), key=lambda it: graph.places()[it.name]):
        whole = {it for it in node.inputs if _numel(graph[it]) * _SMALLER > _numel(node)}
        if node is root or node is anchor or len(whole) != 1:
            continue
        (source,) = (graph[it] for it in whole)
        is_other = source.name in producers.keys() - members.keys()
        begins = is_other and isinstance(source.kind, Conv)
        if users[source.name] == (node.name,) and (begins or source.name in chains):
            chains[node.name] = [*chains.pop(source.name, [source]), node]
    moved: set[str] = set()
    for convolution, *steps in chains.values():
        while steps and not _ends(convolution, steps):
            steps.pop()
        moved.update(step.name for step in steps)
    for node in members.values():  # Users come before what they use.
        if node is not root and moved.issuperset(users[node.name]):
            moved.add(node.name)
    return moved


def _ends(convolution: Node, steps: Sequence[Node]) -> bool:
    """Whether a convolution's kernel can write what the last of these steps makes of it, in no
    more bytes than its own result takes."""
    kind = steps[-1].tensor
    exprs = [step.kind.expr for step in steps if isinstance(step.kind, Pointwise)]
    return (
        kind.shape == convolution.tensor.shape
        and kind.dtype in _CONVOLVED
        and kind.dtype.itemsize <= convolution.tensor.dtype.itemsize
        and sum(map(long_functions, steps)) <= _MOST_LONG
        and not any(map(has_coordinates, exprs))
    )


def _numel(node: Node) -> int:
    return node.type.numel_hint if isinstance(node.type, TensorType) else 0


def _results_of(root: Node, users: Mapping[str, tuple[str, ...]], graph: Graph) -> tuple[Node, ...]:
    if isinstance(root.type, TensorType):
        return ()
    return tuple(graph[name] for name in users[root.name])


def _has_their_rows(node: Node, members: Mapping[str, Node]) -> bool:
    """False where elements ask for a row of the result that is none of the product's."""
    kinds = [member.kind for member in members.values()]
    located = any(isinstance(kind, Pointwise) and has_coordinates(kind.expr) for kind in kinds)
    if isinstance(node.kind, Conv):
        root = next(iter(members.values()))
        is_light = sum(map(long_functions, members.values())) <= _MOST_LONG
        return not located and is_light and root.tensor.dtype in _CONVOLVED
    assert isinstance(node.kind, Contract)
    found = roles(node.kind)
    return not located or (isinstance(found, Roles) and found.m == node.kind.out[-2:-1] != "")


def _is_read_in_phases(node: Node, members: Mapping[str, Node], graph: Graph) -> bool:
    """Whether another tensor of the result's size would be read by the phases of a transposed
    convolution: that took longer than a kernel of its own."""
    if not isinstance(node.kind, Conv) or not node.kind.transposed or max(node.kind.stride) == 1:
        return False
    outside = {name for member in members.values() for name in member.inputs} - members.keys()
    types = (graph[name].type for name in outside - {node.name})
    size = node.tensor.numel_hint
    return any(isinstance(it, TensorType) and it.numel_hint == size for it in types)


def long_functions(node: Node) -> int:
    """Long functions in a step."""
    if not isinstance(node.kind, Pointwise):
        return 0
    return sum(_LONG.get(it.op, 0) for it in walk(node.kind.expr) if isinstance(it, Call))


def _asks_where(anchor: Node, node: Node) -> bool:
    """Whether a step would ask a convolution's kernel where an element stands."""
    is_located = isinstance(node.kind, Pointwise) and has_coordinates(node.kind.expr)
    return isinstance(anchor.kind, Conv) and is_located


def _input_count(members: Mapping[str, Node], joining: Node) -> int:
    read = {name for node in (*members.values(), joining) for name in node.inputs}
    return len(read - members.keys() - {joining.name})


def _occurrences(reader: Node, source: Node) -> int:
    assert isinstance(reader.kind, Pointwise)
    positions = [i for i, name in enumerate(reader.inputs) if name == source.name]
    return sum(
        isinstance(part, Operand) and part.index in positions for part in walk(reader.kind.expr)
    )


def _is_worth_joining(node: Node, root: Node, uses: int) -> bool:
    assert isinstance(node.kind, Pointwise)
    cost = operations(node.kind.expr)
    # Every mention is written out in the kernel's expression; a long one is not readable.
    if uses * cost > _LONGEST_EXPRESSION:
        return False
    # Of the same size: its write and its read disappear. Smaller: it would be computed anew for
    # every element it is broadcast to, which only cheap expressions are worth.
    return node.tensor.numel_hint == root.tensor.numel_hint or cost <= _CHEAP


def _element(anchor: Node) -> DType:
    """Type of what an anchor computes before anything is made of it."""
    kind = anchor.type.items[0] if isinstance(anchor.type, TupleType) else anchor.type
    assert isinstance(kind, TensorType)
    return kind.dtype


def inputs_and_expression(group: ElementGroup, graph: Graph) -> tuple[list[Node], Expr]:
    """What the kernel reads, the anchor's operands first, and what it computes per element."""
    absorbed = {node.name: node for node in group.members}
    inputs = [graph[name] for name in group.anchor.inputs] if group.anchor else []
    # The anchor's operands are read as tiles, everything else element by element.
    tiles = len(inputs)

    def expand(node: Node) -> Expr:
        if node is group.anchor:
            return Accumulator(_element(node))
        if isinstance(node.kind, Relayout):
            return place(node, Operand(0, node.tensor.dtype))
        assert isinstance(node.kind, Pointwise)
        return transform(node.kind.expr, lambda leaf: place(node, leaf))

    def place(node: Node, leaf: Expr) -> Expr:
        if not isinstance(leaf, Operand):
            return leaf
        source = graph[node.inputs[leaf.index]]
        if source.name in absorbed:
            return expand(source)
        if source not in inputs[tiles:]:
            inputs.append(source)
        return Operand(tiles + inputs[tiles:].index(source), leaf.dtype)

    expression = expand(group.root)
    return inputs, expression
