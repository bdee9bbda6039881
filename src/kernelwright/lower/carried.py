"""Loops over elements found again: a value that each step makes from the one before, by itself.

A traced module has a loop's steps one after the other. Where each step computes one value from the
value before, from parts of sequences and from what all steps share, element by element, a `Loop`
node stands for all of them: an exponential moving average, a linear recurrence, the state of a
state-space model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kernelwright.ir.expr import Coordinate, Expr, Operand, operations, transform, walk
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Loop, Opaque, Pointwise, Select, Unsqueeze, View
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.loops import checked
from kernelwright.lower.stacking import Stacking, with_stacks

_FEWEST = 4
"""Steps that are worth a loop."""
_MOST_OPERATIONS = 64
_MOST_INPUTS = 14
_NEAR = 64
"""Nodes among which the step after the last known one is looked for."""
_DTYPES = (DType.F32, DType.F64)


def with_loops(graph: Graph) -> Graph:
    """The captured graph with a node for each loop that carries one value.

    A graph whose calls draw or change something stays as it is: their order counts.
    """
    if any(isinstance(n.kind, Opaque) and (n.kind.mutates or n.kind.random) for n in graph.nodes):
        return graph
    chains = _Steps(graph).chains()
    if not chains:
        return graph
    work, taken, sequences = Stacking(graph), dict[str, Node](), list[str]()
    for chain in chains:
        whole = _loop(chain, work)
        sequences.append(whole)
        for at, name in enumerate(chain.states):
            kind = View(Select(0, Dim.static(at)))
            taken[name] = replace(
                graph[name], kind=kind, inputs=(whole,), origin=None, part_of=None
            )
    nodes = (*(taken.get(it.name, it) for it in graph.nodes), *work.made.values())
    looped = checked(replace(graph, nodes=nodes))
    return checked(with_stacks(looped, frozenset(sequences)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What makes a value, from `leaves`: values of other steps, sequences and what is shared."""

    expr: Expr
    """Operand i is leaf i."""
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]
    """Nodes that the expression stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Steps of which each takes the value of the one before."""

    states: tuple[str, ...]
    steps: tuple[_Step, ...]
    carried: int
    """Which leaf the value before is."""


class _TooLongError(Exception):
    """A step of more operations or inputs than a kernel should have."""


@dataclass(slots=True)
class _Steps:
    """The steps of a graph.

    A node's time is the largest index that it has of a sequence, or, where it is made of one value
    of the steps before, that of the one step that reads it.
    """

    graph: Graph
    _times: dict[str, int] = field(default_factory=dict)
    _reads: set[str] = field(default_factory=set)
    """Views of what has no time: parts of sequences."""
    _known: dict[str, _Step | None] = field(default_factory=dict)
    _results: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._results = frozenset(self.graph.results)
        for node in self.graph.nodes:
            time = max((self._times[name] for name in node.inputs), default=-1)
            is_view = isinstance(node.kind, View)
            if is_view and (time < 0 or node.inputs[0] in self._reads):
                self._reads.add(node.name)
            match node.kind:
                case View(Select(_, index)) if index.is_static and time < 0:
                    time = index.hint
            self._times[node.name] = time
        for node in reversed(self.graph.nodes):
            self._times[node.name] = self._read_at(node)

    def _read_at(self, node: Node) -> int:
        """The time of a node, those of its readers being settled."""
        own = self._times[node.name]
        timed = {name for name in node.inputs if self._times[name] >= 0}
        later = {self._times[name] for name in self.graph.users()[node.name]}
        is_free = isinstance(node.kind, Pointwise) and node.name not in self._results
        if is_free and node.inputs and len(timed) < 2 and len(later) == 1:
            return max(own, *later)
        return own

    def chains(self) -> list[_Chain]:
        """All of at least `_FEWEST` steps that do not depend on each other."""
        before = dict(self._links())
        following = {name: after for after, (name, _) in before.items()}
        found: list[_Chain] = []
        for last in before:
            if last in following:
                continue
            states, (_, carried) = [last], before[last]
            while states[-1] in before and before[states[-1]][1] == carried:
                states.append(before[states[-1]][0])
            states.reverse()
            states += self._rest(states[-1], carried)
            steps = tuple(step for name in states if (step := self._step(name)) is not None)
            chain = _Chain(states=tuple(states), steps=steps, carried=carried)
            if len(states) >= _FEWEST and self._is_closed(chain, found):
                found.append(chain)
        return found

    def _links(self) -> Iterable[tuple[str, tuple[str, int]]]:
        """For a value the one before and which leaf it is."""
        for name in self._values_of_before():
            step = self._step(name)
            if step is None:
                continue
            carried = [it for it in step.leaves if self._is_before(it, self._times[name])]
            if len(carried) == 1 and self._follows(name, carried[0], step):
                yield name, (carried[0], step.leaves.index(carried[0]))

    def _values_of_before(self) -> Iterable[str]:
        """Values that a later step reads, in the order of the graph."""
        found: dict[str, None] = {}
        for node in self.graph.nodes:
            for name in node.inputs:
                is_value = isinstance(self.graph[name].kind, Pointwise)
                if is_value and self._is_before(name, self._times[node.name]):
                    found[name] = None
        return found

    def _is_before(self, name: str, time: int) -> bool:
        return 0 <= self._times[name] < time and name not in self._reads

    def _follows(self, name: str, before: str, step: _Step) -> bool:
        """Whether both are made alike."""
        first = self._step(before)
        if first is None or first.expr != step.expr or len(first.leaves) != len(step.leaves):
            return False
        graph, at = self.graph, step.leaves.index(before)
        pairs = zip(first.leaves, step.leaves, strict=True)
        return graph[name].type == graph[before].type and all(
            place == at or graph[a].type == graph[b].type for place, (a, b) in enumerate(pairs)
        )

    def _rest(self, last: str, carried: int) -> list[str]:
        """The step after the last one that a later step reads, if there is one."""
        users, waiting, seen = self.graph.users(), [last], 0
        while waiting and seen < _NEAR:
            for name in users[waiting.pop(0)]:
                seen += 1
                if not isinstance(self.graph[name].kind, Pointwise):
                    continue
                step = self._step(name)
                if step is not None and last in step.leaves and self._follows(name, last, step):
                    return [name] if step.leaves.index(last) == carried else []
                waiting.append(name)
        return []

    def _is_closed(self, chain: _Chain, others: Sequence[_Chain]) -> bool:
        """Whether nothing else is carried, and no step is another chain's as well."""
        own = frozenset(chain.states)
        if any(not own.isdisjoint(it.states) for it in others):
            return False
        reached = set(own)
        for node in self.graph.nodes:
            if node.name not in own and not reached.isdisjoint(node.inputs):
                reached.add(node.name)
        rest = {
            name
            for step in chain.steps
            for at, name in enumerate(step.leaves)
            if at != chain.carried
        }
        first = chain.steps[0].leaves[chain.carried]
        return len(chain.steps) == len(chain.states) and reached.isdisjoint({*rest, first})

    def _step(self, name: str) -> _Step | None:
        if name not in self._known:
            try:
                self._known[name] = self._expanded(name)
            except _TooLongError:
                self._known[name] = None
        return self._known[name]

    def _expanded(self, name: str) -> _Step | None:
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
        return _Step(expr=expr, leaves=tuple(leaves), nodes=tuple(reversed(nodes)))


# --- One loop ----------------------------------------------------------------------------------


def _loop(chain: _Chain, work: Stacking) -> str:
    """The node of the values of all steps."""
    graph, carried = work.graph, chain.carried
    like = graph[chain.states[0]]
    rank = like.tensor.rank
    inputs, order = [chain.steps[0].leaves[carried]], {carried: 0}
    for place in range(len(chain.steps[0].leaves)):
        if place != carried:
            order[place] = len(inputs)
            inputs.append(_input([step.leaves[place] for step in chain.steps], rank, work))

    def placed(leaf: Expr) -> Expr:
        return Operand(order[leaf.index], leaf.dtype) if isinstance(leaf, Operand) else leaf

    body = transform(chain.steps[0].expr, placed)
    shape = (Dim.static(len(chain.states)), *like.tensor.shape)
    name = work.add("loop", Loop(body), shape, like, *inputs)
    operators = (it for node in chain.steps[0].nodes for it in graph[node].operators)
    work.made[name] = replace(work.made[name], operators=tuple(dict.fromkeys(operators)))
    return name


def _input(names: Sequence[str], rank: int, work: Stacking) -> str:
    """A node that broadcasts to the values of all steps."""
    first = work.graph[names[0]]
    if all(name == first.name for name in names) or not isinstance(first.type, TensorType):
        return first.name
    found = work.joined(names)
    for _ in range(rank - first.type.rank):
        steps, *rest = work.node(found).tensor.shape
        shape = (steps, Dim.static(1), *rest)
        found = work.add(f"{found}_each", View(Unsqueeze(1)), shape, first, found)
    return found
