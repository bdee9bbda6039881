"""Grouping around reductions: which nodes become one row program.

A reduction says which rows there are. Every other reduction over the same rows joins it, every
pointwise step on their elements or on their totals, and what computes the elements in front of
them; what somebody else reads becomes a result of the kernel.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass

from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult
from kernelwright.ir.expr import Expr, Operand, Total, operations, transform
from kernelwright.ir.graph import Graph, Node, epilogues_of
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Project, Reduce, Scan, Window
from kernelwright.ir.types import Dim, TensorType, TupleType
from kernelwright.schedule.in_order import InOrder

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
            group = _Growth(around, node, taken).grown()
            found.append(group)
            taken.update(member.name for member in group.members)
    return tuple(found)


class _Around:
    """What all groups of a graph ask about it."""

    def __init__(self, graph: Graph, ours: frozenset[str]) -> None:
        products = (node.name for node in graph.nodes if isinstance(node.kind, Contract | Conv))
        self.ours = ours
        self.nodes = {node.name: node for node in graph.nodes}
        self.places = graph.places()
        self.users = graph.users()
        self.fixed = frozenset(graph.results)
        self.products = ours.intersection(products)
        self.epilogues = epilogues_of(self.products, graph)


class _Growth:
    """One group while it grows from its first reduction.

    It looks at neighbours of its members, and at what lies between these in the graph: so all
    groups together look at each node a few times, however many there are.
    """

    def __init__(self, around: _Around, seed: Node, taken: Container[str]) -> None:
        assert isinstance(seed.kind, Reduce)
        self._around = around
        self._nodes = around.nodes
        self._places = around.places
        self._users = around.users
        self._fixed = around.fixed
        self._taken = taken
        self._first = self._last = around.places[seed.name]
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
        members = tuple(self._nodes[name] for name in self._in_order(self._members))
        results = tuple(node for node in members if self._is_result(node))
        return RowGroup(shape=self._shape, dims=self._dims, members=members, results=results)

    def _in_order(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=self._places.__getitem__)

    def _is_ours(self, name: str) -> bool:
        return name in self._around.ours and name not in self._taken

    def _grow_down(self) -> None:
        """Join nodes that read members, unless one of their inputs waits for the group."""
        queue = InOrder(self._places, forwards=True)
        for name in self._members:
            queue.add(self._users[name])
        waits: dict[str, bool] = {}
        for name in queue:
            node = self._nodes[name]
            if (
                name not in self._members
                and not any(self._waits(it, waits) for it in node.inputs)
                and self._is_of_rows(node)
                and self._may_join(node)
                and not self._is_for_another(node)
            ):
                self._join(node)
                queue.add(self._users[name])

    def _grow_aside(self) -> None:
        """Join reductions of what the group reads anyway."""
        for name in self._in_order(self._reductions_beside()):
            node = self._nodes[name]
            if (
                name not in self._taken
                and self._may_join(node)
                and not any(self._waits(it, {}, of_members=True) for it in node.inputs)
                and not self._would_wait(node)
            ):
                self._join(node)

    def _reductions_beside(self) -> set[str]:
        """Reductions outside the group of what it reads, through steps of its shape."""
        found: set[str] = set()
        waits: dict[str, bool] = {}
        read = {name for member in self._members for name in self._nodes[member].inputs}
        waiting = [name for name in read if self._is_wide(self._nodes[name])]
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
                    and self._is_ours(name)
                    and self._is_wide(node)
                    # What is made of the group cannot join it, nor what is made of that.
                    and not any(self._waits(it, waits, of_members=True) for it in node.inputs)
                ):
                    waiting.append(name)
        return found - self._members

    def _grow_up(self) -> None:
        """Join what computes inputs of members; what others read of it becomes a result."""
        queue = InOrder(self._places, forwards=False)
        for name in self._members:
            queue.add(self._nodes[name].inputs)
        for name in queue:
            node, readers = self._nodes[name], self._users[name]
            if (
                name not in self._members
                and (self._members.issuperset(readers) or self._is_wide(node))
                and (name not in self._fixed or self._is_wide(node))
                and self._may_join(node)
                and not self._is_epilogue(node)
                and not self._would_wait(node)
            ):
                self._join(node)
                queue.add(node.inputs)

    def _prune(self) -> None:
        """Leave out what only steps outside read: they compute it without its being written."""
        for name in reversed(self._in_order(self._members)):
            node = self._nodes[name]
            readers = [self._nodes[reader] for reader in self._users[name]]
            if (
                name not in self._fixed
                and isinstance(node.kind, Pointwise)
                and self._is_wide(node)
                and all(
                    isinstance(it.kind, Pointwise)
                    and self._is_ours(it.name)
                    and it.name not in self._members
                    and self._is_wide(it)
                    for it in readers
                )
            ):
                self._members.discard(name)

    def _waits(self, name: str, known: dict[str, bool], *, of_members: bool = False) -> bool:
        """Whether a node is made of members, itself none unless `of_members`; `known`: answers
        that hold as long as the members before the node are the same."""
        if name in self._members:
            return of_members
        path = [name]
        while path:
            step = path[-1]
            inputs = self._nodes[step].inputs if self._places[step] > self._first else ()
            is_reader = not self._members.isdisjoint(inputs)
            unknown = () if is_reader else [it for it in inputs if it not in known]
            path += unknown
            if not unknown:
                known[step] = is_reader or any(known[it] for it in inputs)
                path.pop()
        return known[name]

    def _would_wait(self, node: Node) -> bool:
        """Whether a member needs what somebody outside makes of the node."""
        waiting = [name for name in self._users[node.name] if name not in self._members]
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if self._places[name] >= self._last:
                continue
            for reader in self._users[name]:
                if reader in self._members:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return False

    def _may_join(self, node: Node) -> bool:
        match node.kind:
            case Reduce(_, dims) if node.name not in self._taken:
                shape = self._nodes[node.inputs[0]].tensor.shape
                return dims == self._dims and shape == self._shape
            case Project():
                return node.inputs[0] in self._members
            case Pointwise(expr) if self._is_ours(node.name):
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
        if not isinstance(node.kind, Pointwise) or not self._is_wide(node):
            return False
        takers: set[object] = set()
        waiting, seen = [node.name], {node.name}
        while waiting:
            name = waiting.pop()
            if name in self._fixed or not self._users[name]:
                return False
            for reader in map(self._nodes.__getitem__, self._users[name]):
                taker = self._taker(reader, self._nodes[name])
                if taker is not None:
                    takers.add(taker)
                elif not self._repeats(reader):
                    return False
                elif reader.name not in seen:
                    seen.add(reader.name)
                    waiting.append(reader.name)
            if len(takers) > 1:
                return False
        return bool(takers)

    def _taker(self, reader: Node, node: Node) -> object:
        """The kernel that would compute a node where its reader reads it; None where none does."""
        match reader.kind:
            case Reduce(_, dims) if dims != self._dims:
                return dims, node.tensor.shape
            case Window() | Scan():
                return reader.name
        return None

    def _repeats(self, reader: Node) -> bool:
        """Whether a step is computed, with what it reads, by those that read it."""
        is_step = isinstance(reader.kind, Pointwise) and self._is_wide(reader)
        return is_step and self._is_ours(reader.name)

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
            and read.isdisjoint(set(node.inputs) & around.epilogues)
            and node.name in around.epilogues
            and self._is_made_of_product(node)
        )

    def _is_made_of_product(self, node: Node) -> bool:
        """Whether a product is as near: through steps of its size that no group has taken."""
        waiting, seen = deque([node]), {node.name}
        while waiting:
            step = waiting.popleft()
            if step.name in self._around.products:
                return True
            if (
                not isinstance(step.kind, Pointwise)
                or step.name in self._members
                or step.name in self._taken
            ):
                continue
            sources = map(self._nodes.__getitem__, step.inputs)
            alike = [it for it in sources if _same_shape(it, step)]
            waiting.extend(it for it in alike if it.name not in seen)
            seen.update(it.name for it in alike)
        return False

    def _is_result(self, node: Node) -> bool:
        if isinstance(node.type, TupleType):
            return False
        return node.name in self._fixed or any(
            name not in self._members for name in self._users[node.name]
        )

    def _join(self, node: Node) -> None:
        self._members.add(node.name)
        place = self._places[node.name]
        self._first, self._last = min(self._first, place), max(self._last, place)
        self._sizes[node.name] = self._length(node) if isinstance(node.kind, Pointwise) else 0


def _same_shape(one: Node, other: Node) -> bool:
    is_pair = isinstance(one.type, TensorType) and isinstance(other.type, TensorType)
    return is_pair and one.tensor.shape == other.tensor.shape


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
