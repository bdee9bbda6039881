"""Grouping around reductions: which nodes become one row program.

A reduction says which rows there are. Every other reduction over the same rows joins it, every
pointwise step on their elements or on their totals, and what computes the elements in front of
them; what somebody else reads becomes a result of the kernel.
"""

from dataclasses import dataclass

from kernelwright.ir.expr import Expr, Operand, Total, operations, transform
from kernelwright.ir.graph import (
    Contract,
    Graph,
    Node,
    Pointwise,
    Project,
    Reduce,
    Scan,
    Window,
    made_of,
)
from kernelwright.ir.plan import Extent, Fold, RowProgram, RowResult
from kernelwright.ir.types import Dim, TensorType, TupleType

_CHEAP = 4
"""Operations on a smaller operand that are worth repeating for each element."""
_LONGEST_EXPRESSION = 192
"""Operations, repetitions counted, of one expression of a program."""
_MOST_INPUTS = 16
_MOST_ELEMENT_RESULTS = 3
"""Results of the size of the whole: each costs the row a register for every element."""


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
    around = _Around(graph, ours)
    for node in graph.nodes:
        if isinstance(node.kind, Reduce) and node.name not in taken:
            group = _Growth(around, node, ours - taken, frozenset(taken)).grown()
            found.append(group)
            taken.update(member.name for member in group.members)
    return tuple(found)


class _Around:
    """What all groups of a graph ask about it."""

    def __init__(self, graph: Graph, ours: frozenset[str]) -> None:
        products = (node.name for node in graph.nodes if isinstance(node.kind, Contract))
        self.graph = graph
        self.nodes = {node.name: node for node in graph.nodes}
        self.users = graph.users()
        self.fixed = frozenset(graph.results)
        self.products = ours.intersection(products)
        self.made_of_products = made_of(self.products, graph)


class _Growth:
    """One group while it grows from its first reduction."""

    def __init__(
        self, around: _Around, seed: Node, ours: frozenset[str], taken: frozenset[str]
    ) -> None:
        assert isinstance(seed.kind, Reduce)
        self._around = around
        self._graph = around.graph
        self._nodes = around.nodes
        self._users = around.users
        self._fixed = around.fixed
        self._taken = taken
        self._ours = ours
        self._shape = self._nodes[seed.inputs[0]].tensor.shape
        self._dims = seed.kind.dims
        one = Dim.static(1)
        self._totals = tuple(one if at in self._dims else d for at, d in enumerate(self._shape))
        self._members = {seed.name}
        self._sizes: dict[str, int] = {seed.name: 0}

    def grown(self) -> RowGroup:
        """The group at its largest, without what is better computed by its readers."""
        before = 0
        while before != len(self._members):
            before = len(self._members)
            self._grow_down()
            self._grow_aside()
            self._grow_up()
        self._prune()
        members = tuple(node for node in self._graph.nodes if node.name in self._members)
        results = tuple(node for node in members if self._is_result(node))
        return RowGroup(shape=self._shape, dims=self._dims, members=members, results=results)

    def _grow_down(self) -> None:
        """Join nodes that read members, unless one of their inputs waits for the group."""
        waiting: set[str] = set()
        for node in self._graph.nodes:
            if node.name in self._members:
                continue
            if not waiting.isdisjoint(node.inputs):
                waiting.add(node.name)
            elif not self._members.isdisjoint(node.inputs):
                if (
                    self._is_of_rows(node)
                    and self._may_join(node)
                    and not self._is_for_another(node)
                ):
                    self._join(node)
                else:
                    waiting.add(node.name)

    def _grow_aside(self) -> None:
        """Join reductions of what the group reads anyway."""
        read = {name for member in self._members for name in self._nodes[member].inputs}
        read = {name for name in read if self._is_wide(self._nodes[name])}
        for node in self._graph.nodes:
            if (
                isinstance(node.kind, Reduce)
                and node.name not in self._members
                and node.name not in self._taken
                and self._may_join(node)
                and not read.isdisjoint(self._steps_before(node))
                and not self._waits_for_group(node)
                and not self._would_wait(node)
            ):
                self._join(node)

    def _grow_up(self) -> None:
        """Join what computes inputs of members; what others read of it becomes a result."""
        for node in reversed(self._graph.nodes):
            readers = self._users[node.name]
            if (
                node.name not in self._members
                and not self._members.isdisjoint(readers)
                and (self._members.issuperset(readers) or self._is_wide(node))
                and (node.name not in self._fixed or self._is_wide(node))
                and self._may_join(node)
                and not self._is_epilogue(node)
                and not self._would_wait(node)
            ):
                self._join(node)

    def _prune(self) -> None:
        """Leave out what only steps outside read: they compute it without its being written."""
        for node in reversed(self._graph.nodes):
            if node.name not in self._members or node.name in self._fixed:
                continue
            readers = [self._nodes[name] for name in self._users[node.name]]
            if (
                isinstance(node.kind, Pointwise)
                and self._is_wide(node)
                and all(
                    isinstance(it.kind, Pointwise)
                    and it.name in self._ours
                    and it.name not in self._members
                    and self._is_wide(it)
                    for it in readers
                )
            ):
                self._members.discard(node.name)

    def _steps_before(self, node: Node) -> set[str]:
        """What a reduction reads, through steps of its shape."""
        found: set[str] = set()
        waiting = list(node.inputs)
        while waiting:
            name = waiting.pop()
            source = self._nodes[name]
            if name in found or not self._is_wide(source):
                continue
            found.add(name)
            if isinstance(source.kind, Pointwise) and name in self._ours:
                waiting += source.inputs
        return found

    def _waits_for_group(self, node: Node) -> bool:
        """Whether the node needs a member, or what is made of one."""
        made = set(self._members)
        for other in self._graph.nodes:
            if not made.isdisjoint(other.inputs):
                made.add(other.name)
        return node.name in made

    def _would_wait(self, node: Node) -> bool:
        """Whether a member needs what somebody outside makes of the node."""
        waiting: set[str] = set()
        for other in self._graph.nodes:
            if other.name in self._members:
                if not waiting.isdisjoint(other.inputs):
                    return True
            elif node.name in other.inputs or not waiting.isdisjoint(other.inputs):
                waiting.add(other.name)
        return False

    def _may_join(self, node: Node) -> bool:
        match node.kind:
            case Reduce(_, dims) if node.name not in self._taken:
                shape = self._nodes[node.inputs[0]].tensor.shape
                return dims == self._dims and shape == self._shape
            case Project():
                return node.inputs[0] in self._members
            case Pointwise(expr) if node.name in self._ours:
                small = node.tensor.rank <= len(self._shape) and operations(expr) <= _CHEAP
                fits = self._is_of_rows(node) or small
                return fits and self._length(node) <= _LONGEST_EXPRESSION and self._has_room(node)
        return False

    def _is_of_rows(self, node: Node) -> bool:
        """Whether it has one value for each element, or for each row: others are no results."""
        shapes = (self._shape, self._totals)
        return not isinstance(node.type, TensorType) or node.type.shape in shapes

    def _is_for_another(self, node: Node) -> bool:
        """Whether one other kernel alone reads the node and can compute it from the totals.

        Then nothing of the whole's size is written here: that kernel reads what this one reads.
        """
        is_step = isinstance(node.kind, Pointwise) and self._is_wide(node)
        return is_step and len(self._takers(node)) == 1

    def _takers(self, node: Node) -> set[object]:
        """The kernels that would compute a node where they read it; with None where none does."""
        takers: set[object] = set()
        if node.name in self._fixed:
            return {None, self._shape}
        for name in self._users[node.name]:
            reader = self._nodes[name]
            match reader.kind:
                case Reduce(_, dims) if dims != self._dims:
                    takers.add((dims, node.tensor.shape))
                case Window() | Scan():
                    takers.add(name)
                case Pointwise() if self._is_wide(reader) and name in self._ours:
                    takers |= self._takers(reader)
                case _:
                    return {None, self._shape}
        return takers or {None, self._shape}

    def _length(self, node: Node) -> int:
        """Operations of the node's expression with those of its member inputs written out."""
        assert isinstance(node.kind, Pointwise)
        return operations(node.kind.expr) + sum(self._sizes.get(name, 0) for name in node.inputs)

    def _has_room(self, node: Node) -> bool:
        members = self._members | {node.name}
        read = {name for member in members for name in self._nodes[member].inputs} - members
        wide = [
            member
            for member in members
            if self._is_wide(self._nodes[member])
            and (member in self._fixed or any(user not in members for user in self._users[member]))
        ]
        # A step that is read outside is written once and read there, as if it had not joined.
        return len(read) <= _MOST_INPUTS and len(wide) <= _MOST_ELEMENT_RESULTS

    def _is_wide(self, node: Node) -> bool:
        return isinstance(node.type, TensorType) and node.type.shape == self._shape

    def _is_epilogue(self, node: Node) -> bool:
        """Whether a product of ours can compute the node with its result, which costs nothing.

        It does where the group reads that result anyway.
        """
        around = self._around
        read = {name for member in self._members for name in self._nodes[member].inputs}
        return (
            self._is_wide(node)
            and read.isdisjoint(set(node.inputs) & around.made_of_products)
            and node.name in around.made_of_products
            and node.name in made_of(around.products, self._graph, self._members | self._taken)
        )

    def _is_result(self, node: Node) -> bool:
        if isinstance(node.type, TupleType):
            return False
        return node.name in self._fixed or any(
            name not in self._members for name in self._users[node.name]
        )

    def _join(self, node: Node) -> None:
        self._members.add(node.name)
        self._sizes[node.name] = self._length(node) if isinstance(node.kind, Pointwise) else 0


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
