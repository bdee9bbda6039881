"""Grouping: a kernel is an anchor or none, and every pointwise node that can join it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelwright.ir.expr import (
    Accumulator,
    Expr,
    Operand,
    has_coordinates,
    operations,
    transform,
    walk,
)
from kernelwright.ir.graph import (
    Contract,
    DiagEmbed,
    Flip,
    Graph,
    Node,
    Opaque,
    Pointwise,
    Project,
    View,
)
from kernelwright.ir.plan import (
    Einsum,
    GemmConfig,
    Kernel,
    Launch,
    Plan,
    Reinterpret,
    Step,
    Take,
    TorchCall,
)
from kernelwright.machine import Machine
from kernelwright.schedule.configs import elementwise_configs
from kernelwright.schedule.legality import Library, why_not
from kernelwright.schedule.naming import kernel_name, merge_operators
from kernelwright.schedule.roles import Roles, roles
from kernelwright.schedule.triangles import kept_triangle

_CHEAP = 4
"""Operations that are worth recomputing for each element instead of a launch of their own."""
_LONGEST_EXPRESSION = 96
"""Operations, repetitions counted, above which a producer keeps a kernel of its own."""
_MOST_INPUTS = 24
"""Inputs of a kernel: each adds 80 bytes to its parameters, of which CUDA 11 takes 4096."""


def schedule(graph: Graph, machine: Machine, library: Library = Library.WHERE_FASTER) -> Plan:
    """The plan with the fewest modelled bytes that our families allow."""
    reasons = {
        node.name: why_not(node, graph, machine, library)
        for node in graph.nodes
        if isinstance(node.kind, Pointwise | Contract)
    }
    groups = _group(graph, {name for name, reason in reasons.items() if reason is None})
    inside = {node.name for group in groups.values() for node in group.members}
    kernels: list[Kernel] = []
    steps: list[Step] = []
    for node in graph.nodes:
        if node.name in groups:
            steps.append(_launch(groups[node.name], graph, kernels, machine))
        elif node.name not in inside:
            steps += _step(node, reasons.get(node.name) or _why_opaque(node))
    return Plan(graph=graph, steps=tuple(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Nodes that become one kernel; `root` is the one whose value is written."""

    root: Node
    members: tuple[Node, ...]
    """Root, absorbed pointwise nodes and anchor, users before what they use."""
    anchor: Node | None


def _group(graph: Graph, ours: set[str]) -> dict[str, _Group]:
    """Groups by the name of their root, grown from the end of the graph backwards."""
    users = graph.users()
    fixed = set(graph.results) | graph.readers_of_mutable()
    groups: dict[str, _Group] = {}
    taken: set[str] = set()
    for position, root in reversed(list(enumerate(graph.nodes))):
        if root.name not in ours or root.name in taken:
            continue
        producers = [
            node
            for node in reversed(graph.nodes[:position])
            if node.name in ours and node.name not in fixed
        ]
        groups[root.name] = _grow(root, producers, users)
        taken.update(node.name for node in groups[root.name].members)
    return groups


def _grow(root: Node, producers: list[Node], users: dict[str, tuple[str, ...]]) -> _Group:
    """Absorb every producer all of whose users are in the group and that is worth it."""
    if isinstance(root.kind, Contract):
        return _Group(root=root, members=(root,), anchor=root)
    members = {root.name: root}
    copies = {root.name: 1}
    anchor: Node | None = None
    for node in producers:
        readers = users[node.name]
        if not readers or any(name not in members or members[name] is anchor for name in readers):
            continue
        uses = sum(copies[name] * _occurrences(members[name], node) for name in readers)
        if isinstance(node.kind, Contract):
            # The tile of the product is the tile of the result: nothing may be broadcast.
            fits = node.tensor.shape == root.tensor.shape and _has_their_rows(node, members)
            if anchor is None and fits:
                anchor = members[node.name] = node
        elif _is_worth_joining(node, root, uses) and _input_count(members, node) <= _MOST_INPUTS:
            members[node.name], copies[node.name] = node, uses
    return _Group(root=root, members=tuple(members.values()), anchor=anchor)


def _has_their_rows(node: Node, members: Mapping[str, Node]) -> bool:
    """False where elements ask for a row of the result that is none of the product's."""
    assert isinstance(node.kind, Contract)
    found = roles(node.kind)
    kinds = (member.kind for member in members.values())
    located = any(isinstance(kind, Pointwise) and has_coordinates(kind.expr) for kind in kinds)
    return not located or (isinstance(found, Roles) and found.m == node.kind.out[-2:-1] != "")


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


def _inputs_and_expression(group: _Group, graph: Graph) -> tuple[list[Node], Expr]:
    """What the kernel reads, the anchor's operands first, and what it computes per element."""
    absorbed = {node.name: node for node in group.members}
    inputs = [graph[name] for name in group.anchor.inputs] if group.anchor else []
    # The anchor's operands are read as tiles, everything else element by element.
    tiles = len(inputs)

    def expand(node: Node) -> Expr:
        if node is group.anchor:
            return Accumulator(node.tensor.dtype)
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


def _launch(group: _Group, graph: Graph, kernels: list[Kernel], machine: Machine) -> Launch:
    inputs, expression = _inputs_and_expression(group, graph)
    ordered = [node for node in graph.nodes if node in group.members]
    operators = merge_operators(*(node.operators for node in ordered))
    anchor = group.anchor.kind if group.anchor else None
    assert anchor is None or isinstance(anchor, Contract)
    types = tuple(node.type for node in inputs)
    kernel = Kernel(
        name="",
        anchor=anchor,
        inputs=types,
        epilogue=expression,
        output=group.root.tensor,
        operators=operators,
        config=elementwise_configs(anchor, types, group.root.tensor, machine)[0],
        sources=tuple(dict.fromkeys(node.source for node in ordered if node.source)),
        triangle=kept_triangle(expression),
    )
    twin = next((other for other in kernels if _same_text(other, kernel)), None)
    if twin is None:
        name = kernel_name(operators, (other.name for other in kernels))
        twin = replace(kernel, name=name)
        kernels.append(twin)
    return Launch(
        results=(group.root.name,),
        kernel=replace(kernel, name=twin.name, config=twin.config),
        inputs=tuple(node.name for node in inputs),
    )


def _same_text(a: Kernel, b: Kernel) -> bool:
    """Whether one CUDA text serves both kernels: everything but the sizes agrees.

    So does how a product is multiplied; only on the CUDA cores is one tile as good as another.
    """

    def signature(kernel: Kernel) -> object:
        inputs = [
            (type(kind).__name__, getattr(kind, "dtype", None), getattr(kind, "rank", None))
            for kind in kernel.inputs
        ]
        output = (kernel.output.dtype, kernel.output.rank)
        way = None if isinstance(kernel.config, GemmConfig) else kernel.config
        return (kernel.anchor, inputs, str(kernel.epilogue), output, kernel.operators, way)

    return signature(a) == signature(b)


def _why_opaque(node: Node) -> str:
    known = node.kind.why if isinstance(node.kind, Opaque) else None
    return known or "kernelwright has no kernel for it"


def _step(node: Node, why: str) -> list[Step]:
    """What happens to a node outside all kernels; leaves of the graph need no step."""
    match node.kind:
        case Project(index):
            return [Take(result=node.name, input=node.inputs[0], index=index)]
        case View(index_map) if not isinstance(index_map, DiagEmbed | Flip):
            return [
                Reinterpret(result=node.name, input=node.inputs[0], map=index_map, type=node.tensor)
            ]
        case Contract() if node.origin is None:
            lhs, rhs = node.inputs
            return [
                Einsum(
                    result=node.name,
                    contract=node.kind,
                    inputs=(lhs, rhs),
                    type=node.tensor,
                    why=why,
                    source=node.source,
                )
            ]
        case Opaque() | View() | Pointwise() | Contract():
            assert node.origin is not None, f"{node.name} has neither a kernel nor a call"
            return [
                TorchCall(
                    result=node.name,
                    call=node.origin,
                    type=node.type,
                    why=why,
                    mutates=node.kind.mutates if isinstance(node.kind, Opaque) else (),
                    source=node.source,
                )
            ]
    return []
