"""Steps of a traced loop: which step each node belongs to, and what computes a value within one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kernelwright.ir.expr import Coordinate, Expr, Operand, operations, transform, walk
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Pointwise, Select, View
from kernelwright.ir.types import DType, TensorType
from kernelwright.lower.loops.views import firsts_of_same

FEWEST = 4
"""Steps that are worth a loop."""
_MOST_OPERATIONS = 64
_MOST_INPUTS = 14
_DTYPES = (DType.F32, DType.F64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What makes a value, from `leaves`: values of other steps, sequences and what is shared."""

    expr: Expr
    """Operand i is leaf i."""
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]
    """Nodes that the expression stands for."""


class _TooLongError(Exception):
    """A step of more operations or inputs than a kernel should have."""


@dataclass(slots=True)
class Steps:
    """The steps of a graph.

    A node's time is the largest index that it has of a sequence, or, where it is made of one value
    of the steps before, that of the one step that reads it.
    """

    graph: Graph
    _times: dict[str, int] = field(default_factory=dict)
    _reads: set[str] = field(default_factory=set)
    """Views of what has no time: parts of sequences."""
    _known: dict[str, Step | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts, results = _parts_of_sequences(self.graph), frozenset(self.graph.results)
        for node in self.graph.nodes:
            time = max((self._times[name] for name in node.inputs), default=-1)
            is_view = isinstance(node.kind, View)
            if is_view and (time < 0 or node.inputs[0] in self._reads):
                self._reads.add(node.name)
            match node.kind:
                case View(Select(_, index)) if node.name in parts and time < 0:
                    time = index.hint
            self._times[node.name] = time
        for node in reversed(self.graph.nodes):
            self._times[node.name] = self._read_at(node, results)

    def _read_at(self, node: Node, results: frozenset[str]) -> int:
        """The time of a node, those of its readers being settled."""
        own = self._times[node.name]
        timed = {name for name in node.inputs if self._times[name] >= 0}
        later = {self._times[name] for name in self.graph.users()[node.name]}
        is_free = isinstance(node.kind, Pointwise) and node.name not in results
        if is_free and node.inputs and len(timed) < 2 and len(later) == 1:
            return max(own, *later)
        return own

    def values_of_before(self) -> Iterable[str]:
        """Values that a later step reads, in the order of the graph."""
        found: dict[str, None] = {}
        for node in self.graph.nodes:
            for name in node.inputs:
                is_value = isinstance(self.graph[name].kind, Pointwise)
                if is_value and self._is_before(name, self._times[node.name]):
                    found[name] = None
        return found

    def carried_into(self, name: str) -> str | None:
        """The one value of a step before that a value is made of; None where there are more."""
        step = self.step(name)
        if step is None:
            return None
        found = [it for it in step.leaves if self._is_before(it, self._times[name])]
        return found[0] if len(found) == 1 else None

    def _is_before(self, name: str, time: int) -> bool:
        return 0 <= self._times[name] < time and name not in self._reads

    def are_alike(self, name: str, before: str) -> bool:
        """Whether a value is made as the one before is, which it is made of."""
        first, step, graph = self.step(before), self.step(name), self.graph
        if first is None or step is None or before not in step.leaves:
            return False
        if first.expr != step.expr or len(first.leaves) != len(step.leaves):
            return False
        at = step.leaves.index(before)
        return graph[name].type == graph[before].type and all(
            place == at or self._are_operands_alike(*pair)
            for place, pair in enumerate(zip(first.leaves, step.leaves, strict=True))
        )

    def _are_operands_alike(self, a: str, b: str) -> bool:
        """Whether one operand of a loop can be both; numbers do not lie in a tensor."""
        kind, other = self.graph[a].type, self.graph[b].type
        return a == b or (kind == other and isinstance(kind, TensorType))

    def step(self, name: str) -> Step | None:
        """What makes a value within its step; None where that is no expression, or a long one."""
        if name not in self._known:
            try:
                self._known[name] = self._expanded(name)
            except _TooLongError:
                self._known[name] = None
        return self._known[name]

    def _expanded(self, name: str) -> Step | None:
        graph, time = self.graph, self._times[name]
        leaves: dict[str, int] = {}
        nodes: dict[str, None] = {}
        count = 0

        def expand(node: Node) -> Expr:
            nonlocal count
            assert isinstance(node.kind, Pointwise)
            count += operations(node.kind.expr)
            if count > _MOST_OPERATIONS or len(leaves) > _MOST_INPUTS:
                raise _TooLongError
            nodes[node.name] = None
            return transform(node.kind.expr, lambda leaf: placed(node, leaf))

        def placed(node: Node, leaf: Expr) -> Expr:
            if not isinstance(leaf, Operand):
                return leaf
            source = graph[node.inputs[leaf.index]]
            inside = isinstance(source.kind, Pointwise) and self._times[source.name] == time
            if inside and source.tensor.dtype not in (DType.F16, DType.BF16):
                return expand(source)
            return Operand(leaves.setdefault(source.name, len(leaves)), leaf.dtype)

        node = graph[name]
        if time < 0 or not isinstance(node.kind, Pointwise) or node.tensor.dtype not in _DTYPES:
            return None
        expr = expand(node)
        if any(isinstance(part, Coordinate) for part in walk(expr)):
            return None
        return Step(expr=expr, leaves=tuple(leaves), nodes=tuple(reversed(nodes)))


def _parts_of_sequences(graph: Graph) -> frozenset[str]:
    """Elements that are selected of tensors, at least `FEWEST` different ones of each."""
    firsts = firsts_of_same(graph)
    parts: dict[tuple[str, int], dict[int, list[str]]] = {}
    for node in graph.nodes:
        match node.kind:
            case View(Select(dim, index)) if index.is_static:
                of_tensor = parts.setdefault((firsts[node.inputs[0]], dim), {})
                of_tensor.setdefault(index.hint, []).append(node.name)
    return frozenset(
        name
        for found in parts.values()
        if len(found) >= FEWEST
        for names in found.values()
        for name in names
    )
