"""Loops of cells: a cell that a module calls once for each step is one recurrent layer.

A traced module has a loop's steps one after the other. Where they are steps of a cell, each on the
states of the one before and with the same weights, a `Recurrent` node stands for all of them, and
what is done with the states of each step is done for all steps at once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.expr import Call, Coordinate, Literal, Operand
from kernelwright.ir.graph import Graph, Node, UserCall
from kernelwright.ir.kinds import (
    Contract,
    Opaque,
    Pointwise,
    Project,
    Select,
    Slice,
    Unsqueeze,
    View,
)
from kernelwright.ir.library_calls import call_of_layer, call_of_linear
from kernelwright.ir.recurrence import Cell, Recurrent
from kernelwright.ir.types import Dim, DType, TensorType, TupleType
from kernelwright.lower.loops.cells import CellStep, Factor, Weight, cell_steps
from kernelwright.lower.loops.ordering import checked
from kernelwright.lower.loops.stacking import Stacking, with_stacks

Takes = Callable[[Node, Graph], bool]
"""Whether a kernel computes such a node of such a graph, and sooner than its steps are."""

_FEWEST = 4
"""Steps that are worth a layer."""
_ONE = Dim.static(1)
_GREATEST = (2 - 2.0**-23) * 2.0**127
"""The greatest number of float32."""


def with_layers(graph: Graph, takes: Takes) -> Graph:
    """The captured graph with a layer for each loop of cells that a kernel takes.

    A graph whose calls draw or change something stays as it is: their order counts.
    """
    if any(isinstance(n.kind, Opaque) and (n.kind.mutates or n.kind.random) for n in graph.nodes):
        return graph
    sequences: list[str] = []
    refused: set[str | None] = set()
    while True:
        found = next((it for it in _chains(graph) if it.steps[-1].after[0] not in refused), None)
        if found is None:
            break
        refused.add(found.steps[-1].after[0])
        layer = next((it for it in _layers(graph, found) if takes(it.node, it.graph)), None)
        if layer is not None:
            graph = layer.graph
            sequences.append(layer.sequence)
    if not sequences:
        return graph
    return checked(with_stacks(graph, frozenset(sequences)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Steps of which each takes the states of the one before."""

    steps: tuple[CellStep, ...]
    hidden: int
    """Which product is that of the hidden state."""

    def state(self, at: int) -> str:
        """The hidden state before a step."""
        return self.steps[at].factors[self.hidden].operand

    def input(self, at: int) -> Factor:
        """The other product of a step."""
        return self.steps[at].factors[1 - self.hidden]


def _chains(graph: Graph) -> Iterable[_Chain]:
    """All of at least `_FEWEST` steps."""
    steps = list(cell_steps(graph))
    by_state = {step.after[0]: step for step in steps if step.after[0] is not None}
    following: dict[int, tuple[CellStep, int]] = {}
    followed: set[int] = set()
    for step in steps:
        for hidden in (1,) if step.is_settled else (1, 0):
            before = by_state.get(step.factors[hidden].operand)
            if before is None or id(before) in following or before.weights != step.weights:
                continue
            if before.after[1:] == step.others:
                following[id(before)] = (step, hidden)
                followed.add(id(step))
                break
    for first in steps:
        if id(first) in followed or id(first) not in following:
            continue
        hidden = following[id(first)][1]
        chain, step = [first], first
        while id(step) in following and following[id(step)][1] == hidden:
            step = following[id(step)][0]
            chain.append(step)
        if len(chain) >= _FEWEST:
            found = _Chain(steps=tuple(chain), hidden=hidden)
            if _is_closed(found, graph):
                yield found


def _is_closed(chain: _Chain, graph: Graph) -> bool:
    """Whether nothing else is carried: no input depends on a state, and cells are seen at the end
    only."""
    shown = set(graph.results)
    users = graph.users()
    for step in chain.steps[:-1]:
        for name in step.after[1:]:
            if name in shown or len(users[name or ""]) > 1:
                return False
    reached = {name for step in chain.steps for name in step.after if name}
    own = frozenset(reached)
    for node in graph.nodes:
        if node.name not in own and not reached.isdisjoint(node.inputs):
            reached.add(node.name)
    rest = {chain.input(at).operand for at in range(len(chain.steps))}
    rest |= {it.weight.matrix for it in chain.steps[0].factors} | {*chain.steps[0].biases}
    return reached.isdisjoint(rest) and reached.isdisjoint(_first_states(chain))


def _first_states(chain: _Chain) -> tuple[str, ...]:
    return (chain.state(0), *chain.steps[0].others)


# --- One layer ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    graph: Graph
    node: Node
    sequence: str
    """The node of the states of all steps."""


def _layers(graph: Graph, chain: _Chain) -> Iterable[_Layer]:
    """The graph with the chain as a layer: with the products of inputs in it, and before it."""
    yield _Making(graph, chain).layer(_Making.direct)
    if chain.steps[0].cell is Cell.RNN_TANH:
        yield _Making(graph, chain).layer(_Making.hoisted)


class _Making:
    """The nodes of one layer."""

    def __init__(self, graph: Graph, chain: _Chain) -> None:
        self._graph = graph
        self._chain = chain
        self._work = Stacking(graph)
        self._first = chain.steps[0]
        state = graph[chain.state(0)]
        self._batch, self._hidden = state.tensor.shape
        self._like = state

    def layer(self, inputs: "Callable[[_Making], tuple[str, tuple[str, ...]]]") -> _Layer:
        """The whole; `inputs` makes the sequence and the weights."""
        sequence, weights = inputs(self)
        node = self._stack(sequence, weights)
        steps = Dim.static(len(self._chain.steps))
        whole = self._add("states", Project(0), (steps, self._batch, self._hidden), node.name)
        taken = {}
        for at, step in enumerate(self._chain.steps):
            taken[step.after[0]] = (whole, Select(0, Dim.static(at)))
        for at, name in enumerate(self._chain.steps[-1].after[1:], 2):
            if name is not None:
                shape = (_ONE, self._batch, self._hidden)
                last = self._add("cells", Project(at), shape, node.name)
                taken[name] = (last, Select(0, Dim.static(0)))
        nodes = [
            replace(n, kind=View(taken[n.name][1]), inputs=(taken[n.name][0],), origin=None,
                    part_of=None)
            if n.name in taken else n
            for n in self._graph.nodes
        ]  # fmt: skip
        graph = checked(replace(self._graph, nodes=(*nodes, *self._work.made.values())))
        return _Layer(graph=graph, node=graph[node.name], sequence=whole)

    def direct(self) -> tuple[str, tuple[str, ...]]:
        """The inputs themselves, and all weights."""
        factors = (self._chain.input(0), self._first.factors[self._chain.hidden])
        weights = [self._columns(it.weight) for it in factors]
        biases = self._first.biases
        if len(biases) == 1:
            rows = self._graph[biases[0]].tensor.shape
            zeros = Pointwise(Literal(0.0, self._like.tensor.dtype))
            biases = (*biases, self._work.add("no_bias", zeros, rows, self._like))
        return self._sequence(), (*weights, *biases)

    def _sequence(self) -> str:
        count = range(len(self._chain.steps))
        return self._work.joined([self._chain.input(at).operand for at in count])

    def hoisted(self) -> tuple[str, tuple[str, ...]]:
        """The inputs' products with their biases for all steps at once, which a layer of the
        identity reads."""
        raw, weight = self._sequence(), self._columns(self._chain.input(0).weight)
        shape = (*self._work.node(raw).tensor.shape[:2], self._hidden)
        product = Contract("abc", "dc", "abd")
        sums = [self._work.add("input_products", product, shape, self._like, raw, weight)]
        both = (Operand(0, DType.F32), Operand(1, DType.F32))
        added = Pointwise(Call("add", both, DType.F32))
        for bias in self._first.biases:
            sums.append(self._work.add("input_sums", added, shape, self._like, sums[-1], bias))
        first = self._work.made[sums[0]]
        # Zeros of the identity make NaN of infinities. The greatest number's tangent is 1, too.
        ends = (Literal(end, DType.F32) for end in (-_GREATEST, _GREATEST))
        finite = Call("clamp", (both[0], *ends), DType.F32)
        found = self._work.add("finite_sums", Pointwise(finite), shape, self._like, sums[-1])
        linear = call_of_linear((raw, weight, *self._first.biases[:1]))
        call = UserCall(sums[:2][-1], linear, Opaque())
        self._work.made[first.name] = replace(first, part_of=call)
        is_diagonal = Call("eq", (Coordinate(-2), Coordinate(-1)), DType.BOOL)
        identity = Pointwise(Call("cast", (is_diagonal,), DType.F32))
        square = (self._hidden, self._hidden)
        matrix = self._work.add("identity", identity, square, self._like)
        own = self._columns(self._first.factors[self._chain.hidden].weight)
        return found, (matrix, own)

    def _columns(self, weight: Weight) -> str:
        matrix = self._graph[weight.matrix]
        rows, columns = matrix.tensor.shape
        width = weight.stop - weight.start
        if columns == Dim.static(width):
            return matrix.name
        part = View(Slice(1, Dim.static(weight.start), Dim.static(weight.stop), 1))
        shape = (rows, Dim.static(width))
        return self._work.add(f"{matrix.name}_part", part, shape, matrix, matrix.name)

    def _add(self, stem: str, kind: Project, shape: Sequence[Dim], source: str) -> str:
        return self._work.add(stem, kind, shape, self._like, source)

    def _stack(self, sequence: str, weights: tuple[str, ...]) -> Node:
        cell = self._first.cell
        kind = Recurrent(
            cell=cell,
            layers=1,
            directions=1,
            has_bias=len(weights) > 2,
            batch_first=False,
            is_loop=True,
        )
        shape = (_ONE, self._batch, self._hidden)
        first = [
            self._work.add("first_states", View(Unsqueeze(0)), shape, self._like, name)
            for name in _first_states(self._chain)
        ]
        name = self._work.add(
            "loop", kind, self._work.node(sequence).tensor.shape, self._like,
            sequence, *first, *weights,
        )  # fmt: skip
        dtype, steps = self._like.tensor.dtype, self._work.node(sequence).tensor.shape[0]
        each = TensorType(dtype, shape)
        results = (TensorType(dtype, (steps, self._batch, self._hidden)), *[each] * cell.states)
        self._work.made[name] = replace(
            self._work.made[name],
            type=TupleType(results),
            origin=call_of_layer(cell, sequence, first, weights),
            operators=(str(cell),),
        )
        return self._work.made[name]
