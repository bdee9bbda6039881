"""Grouping around reductions: which nodes become one row program.

A reduction says which rows there are. Every other reduction over the same rows joins it, every
pointwise step on their elements or on their totals, and what computes the elements in front of
them; what somebody else reads becomes a result of the kernel. Steps on what the kernel reads anyway
join it where only products read them.
"""

from collections.abc import Container
from dataclasses import dataclass

from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult
from kernelwright.ir.expr import Call, Expr, Operand, Total, operations, transform
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Pointwise, Project, Reduce
from kernelwright.ir.types import Dim, TensorType, TupleType
from kernelwright.schedule.in_order import InOrder
from kernelwright.schedule.row_members import Around, Members, Others

_CHEAP = 4
"""Operations on a smaller operand that are worth repeating for each element."""
_LONGEST_EXPRESSION = 192
"""Operations, repetitions counted, of one expression of a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Nodes that one row program computes."""

    shape: tuple[Dim, ...]
    dims: tuple[int, ...]
    members: tuple[Node, ...]
    """In the order of the graph."""
    results: tuple[Node, ...]
    """Members that somebody else reads, in the same order."""


def row_groups(graph: Graph, ours: frozenset[str]) -> tuple[RowGroup, ...]:
    """The groups of a graph; `ours` are the pointwise nodes and products that kernels may have."""
    found: list[RowGroup] = []
    taken: set[str] = set()
    around = Around(graph, ours)
    for node in graph.nodes:
        if isinstance(node.kind, Reduce) and node.name not in taken:
            group = _Growth(around, node, taken).grown()
            found.append(group)
            taken.update(member.name for member in group.members)
    return tuple(found)


class _Growth:
    """One group while it grows from its first reduction.

    It looks at neighbours of its members, and at what lies between these in the graph: so all
    groups together look at each node a few times, however many there are.
    """

    def __init__(self, around: Around, seed: Node, taken: Container[str]) -> None:
        self._epilogues = around.epilogues
        self._nodes = around.nodes
        self._places = around.places
        self._users = around.users
        self._fixed = around.fixed
        self._taken = taken
        self._members = members = Members(around, seed)
        self._others = Others(around, members, taken)
        one = Dim.static(1)
        totals = tuple(one if at in members.dims else d for at, d in enumerate(members.shape))
        self._shapes = (members.shape, totals)

    def grown(self) -> RowGroup:
        """The group at its largest, without what is better computed by its readers."""
        before = 0
        while before != len(self._members.names):
            before = len(self._members.names)
            self._grow_down()
            self._grow_aside()
            self._grow_up()
        self._prune()
        self._join_beside()
        found = self._members
        members = tuple(self._nodes[name] for name in found.in_order(found.names))
        results = tuple(node for node in members if found.is_result(node))
        return RowGroup(shape=found.shape, dims=found.dims, members=members, results=results)

    def _grow_down(self) -> None:
        """Join nodes that read members, unless one of their inputs waits for the group."""
        queue = InOrder(self._places, forwards=True)
        for name in self._members.names:
            queue.add(self._users[name])
        waits: dict[str, bool] = {}
        for name in queue:
            node = self._nodes[name]
            if (
                name not in self._members.names
                and not any(self._members.waits(it, waits) for it in node.inputs)
                and self._is_of_rows(node)
                and self._may_join(node)
                and not self._others.is_for_another(node)
            ):
                self._members.join(node)
                queue.add(self._users[name])

    def _grow_aside(self) -> None:
        """Join reductions of what the group reads anyway."""
        for name in self._members.in_order(self._reductions_beside()):
            node = self._nodes[name]
            if (
                name not in self._taken
                and self._may_join(node)
                and not any(self._members.waits(it, {}, of_members=True) for it in node.inputs)
                and not self._members.would_wait(node)
            ):
                self._members.join(node)

    def _reductions_beside(self) -> set[str]:
        """Reductions outside the group of what it reads, through steps of its shape."""
        found: set[str] = set()
        waits: dict[str, bool] = {}
        read = self._members.read()
        waiting = [name for name in read if self._members.is_wide(self._nodes[name])]
        seen = set(waiting)
        while waiting:
            for name in self._users[waiting.pop()]:
                node = self._nodes[name]
                if name in seen:
                    continue
                seen.add(name)
                if isinstance(node.kind, Reduce):
                    found.add(name)
                elif (
                    isinstance(node.kind, Pointwise)
                    and self._others.is_ours(name)
                    and self._members.is_wide(node)
                    # What is made of the group cannot join it, nor what is made of that.
                    and not any(
                        self._members.waits(it, waits, of_members=True) for it in node.inputs
                    )
                ):
                    waiting.append(name)
        return found - self._members.names

    def _join_beside(self) -> None:
        """Join steps on nothing but what the group reads anyway, one for each element, that only
        products read: they are written in any case, and a launch less reads what they are made of.
        """
        read = self._members.read() - self._members.names
        wide = [name for name in read if self._members.is_wide(self._nodes[name])]
        beside = {user for name in wide for user in self._users[name]} - self._members.names
        for name in self._members.in_order(beside):
            node = self._nodes[name]
            if (
                isinstance(node.kind, Pointwise)
                and self._members.is_wide(node)
                and read.issuperset(node.inputs)
                and all(isinstance(self._nodes[it].kind, Contract) for it in self._users[name])
                and name not in self._fixed
                and self._may_join(node)
                and not self._is_epilogue(node)
                and not self._members.would_wait(node)
            ):
                self._members.join(node)

    def _grow_up(self) -> None:
        """Join what computes inputs of members; what others read of it becomes a result."""
        queue = InOrder(self._places, forwards=False)
        for name in self._members.names:
            queue.add(self._nodes[name].inputs)
        for name in queue:
            node, readers = self._nodes[name], self._users[name]
            if (
                name not in self._members.names
                and (self._members.names.issuperset(readers) or self._members.is_wide(node))
                and (name not in self._fixed or self._members.is_wide(node))
                and self._may_join(node)
                and not self._is_epilogue(node)
                and not self._members.would_wait(node)
            ):
                self._members.join(node)
                queue.add(node.inputs)

    def _prune(self) -> None:
        """Leave out what only steps outside read: they compute it without its being written."""
        for name in reversed(self._members.in_order(self._members.names)):
            node = self._nodes[name]
            readers = [self._nodes[reader] for reader in self._users[name]]
            if (
                name not in self._fixed
                and isinstance(node.kind, Pointwise)
                and self._members.is_wide(node)
                and all(
                    isinstance(it.kind, Pointwise)
                    and self._others.is_ours(it.name)
                    and it.name not in self._members.names
                    and self._members.is_wide(it)
                    for it in readers
                )
            ):
                self._members.names.discard(name)

    def _may_join(self, node: Node) -> bool:
        match node.kind:
            case Reduce(_, dims) if node.name not in self._taken:
                shape = self._nodes[node.inputs[0]].tensor.shape
                return (shape, dims) == (self._members.shape, self._members.dims)
            case Project():
                return node.inputs[0] in self._members.names
            case Pointwise(expr) if self._others.is_ours(node.name):
                small = node.tensor.rank <= len(self._members.shape) and operations(expr) <= _CHEAP
                fits = self._is_of_rows(node) or small
                fits = fits and self._members.length(node) <= _LONGEST_EXPRESSION
                return fits and self._members.has_room(node)
        return False

    def _is_of_rows(self, node: Node) -> bool:
        """Whether it has one value for each element, or for each row: others are no results."""
        return not isinstance(node.type, TensorType) or node.type.shape in self._shapes

    def _is_epilogue(self, node: Node) -> bool:
        """Whether a product of ours can compute the node with its result, which costs nothing.

        Not where that result is written anyway, for the group or for others, nor where the node is
        the same in more bytes.
        """
        read = self._members.read()
        sources = set(node.inputs) & self._epilogues
        return (
            self._members.is_wide(node)
            and read.isdisjoint(sources)
            and not all(self._is_read_by_others(name, node) for name in sources)
            and not self._is_widened(node)
            and node.name in self._epilogues
            and self._others.is_made_of_product(node)
        )

    def _is_read_by_others(self, name: str, node: Node) -> bool:
        return name in self._fixed or self._users[name] != (node.name,)

    def _is_widened(self, node: Node) -> bool:
        """Whether a node is the conversion of its input to a larger type."""
        match node.kind:
            case Pointwise(Call("cast", (Operand(),), dtype)):
                source = self._nodes[node.inputs[0]].tensor
                return dtype.itemsize > source.dtype.itemsize
        return False


def program_of(group: RowGroup, graph: Graph) -> tuple[RowProgram, tuple[Node, ...]]:
    """The row program of a group and the nodes whose values are its operands, in order."""
    writer = _Program(group, graph)
    results = tuple(
        RowResult(
            value=writer.expand(node),
            extent=Extent.ELEMENT if node.tensor.shape == group.shape else Extent.ROW,
        )
        for node in group.results
    )
    program = RowProgram(
        shape=group.shape, dims=group.dims, folds=tuple(writer.folds), results=results
    )
    return program, tuple(writer.inputs)


class _Program:
    """Writes the members of a group as expressions over operands and totals."""

    def __init__(self, group: RowGroup, graph: Graph) -> None:
        self._graph = graph
        self._members = {node.name: node for node in group.members}
        self._known: dict[str, Expr] = {}
        self._first_total: dict[str, int] = {}
        self.inputs: list[Node] = []
        self.folds: list[Fold] = []
        for node in group.members:
            if isinstance(node.kind, Reduce):
                self._fold(node, node.kind)

    def _fold(self, node: Node, kind: Reduce) -> None:
        value = self._operand(self._graph[node.inputs[0]])
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        dtypes = tuple(item.dtype for item in types if isinstance(item, TensorType))
        self._first_total[node.name] = sum(len(fold.totals) for fold in self.folds)
        self.folds.append(Fold(op=kind.op, value=value, totals=dtypes))

    def expand(self, node: Node) -> Expr:
        """The expression of a member."""
        if node.name not in self._known:
            self._known[node.name] = self._expand(node)
        return self._known[node.name]

    def _expand(self, node: Node) -> Expr:
        match node.kind:
            case Reduce():
                return Total(self._first_total[node.name], node.tensor.dtype)
            case Project(index):
                return Total(self._first_total[node.inputs[0]] + index, node.tensor.dtype)
            case Pointwise(expr):
                return transform(expr, lambda leaf: self._leaf(node, leaf))
        raise AssertionError(f"{node.name} is no part of a row program")

    def _leaf(self, node: Node, leaf: Expr) -> Expr:
        if not isinstance(leaf, Operand):
            return leaf
        return self._operand(self._graph[node.inputs[leaf.index]])

    def _operand(self, source: Node) -> Expr:
        if source.name in self._members:
            return self.expand(source)
        if source not in self.inputs:
            self.inputs.append(source)
        dtype = getattr(source.type, "dtype", None)
        assert dtype is not None, f"{source.name} is {source.type}, which no kernel reads"
        return Operand(self.inputs.index(source), dtype)
