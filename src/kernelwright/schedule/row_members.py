"""Members of a group of rows while it grows, and who else could compute a node.

See row_groups.py, which decides what joins.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator

from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph, Node, epilogues_of
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Project, Reduce, Scan, Window
from kernelwright.ir.types import TensorType, TupleType

_MOST_INPUTS = 16
_MOST_ELEMENT_RESULTS = 3
"""Results of the size of the whole: each costs the row a register for every element."""


class Around:
    """What all groups of a graph ask about it."""

    def __init__(self, graph: Graph, ours: frozenset[str]) -> None:
        products = (node.name for node in graph.nodes if _is_product(node))
        self.ours = ours
        self.nodes = {node.name: node for node in graph.nodes}
        self.places = graph.places()
        self.users = graph.users()
        self.fixed = frozenset(graph.results)
        self.products = ours.intersection(products)
        self.epilogues = epilogues_of(self.products, graph)


class Members:
    """Nodes of one group, and what depends on which they are."""

    def __init__(self, around: Around, seed: Node) -> None:
        assert isinstance(seed.kind, Reduce)
        self._nodes = around.nodes
        self._places = around.places
        self._users = around.users
        self._fixed = around.fixed
        self.shape = around.nodes[seed.inputs[0]].tensor.shape
        """Sizes of the elements."""
        self.dims = seed.kind.dims
        """The reduced ones."""
        self.names = {seed.name}
        self._sizes: dict[str, int] = {seed.name: 0}
        self._first = self._last = around.places[seed.name]

    def read(self) -> set[str]:
        """Everything that members read, members or not."""
        return {name for member in self.names for name in self._nodes[member].inputs}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Nodes in the order of the graph."""
        return sorted(names, key=self._places.__getitem__)

    def join(self, node: Node) -> None:
        """One member more."""
        self.names.add(node.name)
        place = self._places[node.name]
        self._first, self._last = min(self._first, place), max(self._last, place)
        self._sizes[node.name] = self.length(node) if isinstance(node.kind, Pointwise) else 0

    def length(self, node: Node) -> int:
        """Operations of the node's expression with those of its member inputs written out."""
        assert isinstance(node.kind, Pointwise)
        return operations(node.kind.expr) + sum(self._sizes.get(name, 0) for name in node.inputs)

    def waits(self, name: str, known: dict[str, bool], *, of_members: bool = False) -> bool:
        """Whether a node is made of members, itself none unless `of_members`; `known`: answers
        that hold as long as the members before the node are the same."""
        if name in self.names:
            return of_members
        path = [name]
        while path:
            step = path[-1]
            inputs = self._nodes[step].inputs if self._places[step] > self._first else ()
            is_reader = not self.names.isdisjoint(inputs)
            unknown = () if is_reader else [it for it in inputs if it not in known]
            path += unknown
            if not unknown:
                known[step] = is_reader or any(known[it] for it in inputs)
                path.pop()
        return known[name]

    def would_wait(self, node: Node) -> bool:
        """Whether a member needs what somebody outside makes of the node."""
        waiting = [name for name in self._users[node.name] if name not in self.names]
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            if self._places[name] >= self._last:
                continue
            for reader in self._users[name]:
                if reader in self.names:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return False

    def has_room(self, node: Node) -> bool:
        """Whether the group's kernel could take a node's operands and results as well."""
        members = self.names | {node.name}
        read = {name for member in members for name in self._nodes[member].inputs} - members
        wide = [
            member
            for member in members
            if self.is_wide(self._nodes[member])
            and (member in self._fixed or any(user not in members for user in self._users[member]))
        ]
        # A step that is read outside is written once and read there, as if it had not joined.
        return len(read) <= _MOST_INPUTS and len(wide) <= _MOST_ELEMENT_RESULTS

    def is_result(self, node: Node) -> bool:
        """Whether somebody outside reads a member."""
        if isinstance(node.type, TupleType):
            return False
        return node.name in self._fixed or any(
            name not in self.names for name in self._users[node.name]
        )

    def is_wide(self, node: Node) -> bool:
        """Whether a node has one value for each element of the rows."""
        return isinstance(node.type, TensorType) and node.type.shape == self.shape


class Others:
    """Who else could compute a node: kernels that read it, products that it follows."""

    def __init__(self, around: Around, members: Members, taken: Container[str]) -> None:
        self._around = around
        self._nodes = around.nodes
        self._users = around.users
        self._fixed = around.fixed
        self._members = members
        self._taken = taken

    def is_ours(self, name: str) -> bool:
        """Whether a kernel may have a node that no group has taken."""
        return name in self._around.ours and name not in self._taken

    def is_for_another(self, node: Node) -> bool:
        """Whether one other kernel alone reads the node and can compute it from the totals.

        Then nothing of the whole's size is written here: that kernel reads what this one reads.
        """
        if not isinstance(node.kind, Pointwise) or not self._members.is_wide(node):
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
            case Reduce(_, dims) if dims != self._members.dims:
                return dims, node.tensor.shape
            case Window() | Scan():
                return reader.name
            case Pointwise() if self._repeats(reader):
                # Computed with the totals of other rows that it reads.
                takers = (self._taker(it, node) for it in self._made_rows(reader))
                return next((it for it in takers if self._are_ones(it)), None)
        return None

    def _are_ones(self, taker: object) -> bool:
        """Whether our totals are one for each row of the kernel that takes a node: others would be
        read as often as its elements."""
        return isinstance(taker, tuple) and set(taker[0]) <= set(self._members.dims)

    def _made_rows(self, reader: Node) -> Iterator[Node]:
        """The reductions of the whole whose totals a node reads."""
        for source in map(self._nodes.__getitem__, reader.inputs):
            made = self._nodes[source.inputs[0]] if isinstance(source.kind, Project) else source
            is_made = isinstance(made.kind, Reduce)
            if is_made and self._members.is_wide(self._nodes[made.inputs[0]]):
                yield made

    def _repeats(self, reader: Node) -> bool:
        """Whether a step is computed, with what it reads, by those that read it."""
        is_step = isinstance(reader.kind, Pointwise) and self._members.is_wide(reader)
        return is_step and self.is_ours(reader.name)

    def is_made_of_product(self, node: Node) -> bool:
        """Whether a product is as near: through steps of its size that no group has taken."""
        waiting, seen = deque([node]), {node.name}
        while waiting:
            step = waiting.popleft()
            if step.name in self._around.products:
                return True
            if (
                not isinstance(step.kind, Pointwise)
                or step.name in self._members.names
                or step.name in self._taken
            ):
                continue
            sources = map(self._nodes.__getitem__, step.inputs)
            alike = [it for it in sources if _same_shape(it, step)]
            waiting.extend(it for it in alike if it.name not in seen)
            seen.update(it.name for it in alike)
        return False


def _is_product(node: Node) -> bool:
    """Whether its kernel has steps on the result: depthwise convolutions among them."""
    match node.kind:
        case Contract() | Conv():
            return True
        case Window(op):
            return op.has_weights
    return False


def _same_shape(one: Node, other: Node) -> bool:
    is_pair = isinstance(one.type, TensorType) and isinstance(other.type, TensorType)
    return is_pair and one.tensor.shape == other.tensor.shape
