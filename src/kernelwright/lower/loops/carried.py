"""Loops over elements: a value that each step makes from the one before, element by element.

Where each step computes one value from the value before, from parts of sequences and from what all
steps share, a `Loop` node stands for all of them: an exponential moving average, a linear
recurrence, the state of a state-space model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.expr import Expr, Operand, transform
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Loop, Opaque, Pointwise, Select, Unsqueeze, View
from kernelwright.ir.types import Dim, TensorType
from kernelwright.lower.loops.ordering import checked
from kernelwright.lower.loops.stacking import Stacking, with_stacks
from kernelwright.lower.loops.steps import FEWEST, Step, Steps

_NEAR = 64
"""Nodes among which the step after the last known one is looked for."""


def with_loops(graph: Graph) -> Graph:
    """The captured graph with a node for each loop that carries one value.

    A graph whose calls draw or change something stays as it is: their order counts.
    """
    if any(isinstance(n.kind, Opaque) and (n.kind.mutates or n.kind.random) for n in graph.nodes):
        return graph
    # A loop over what another one carries is found once that is known.
    while chains := _chains(Steps(graph)):
        graph = _with_chains(graph, chains)
    return graph


# --- Which values are carried ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Steps of which each takes the value of the one before."""

    states: tuple[str, ...]
    steps: tuple[Step, ...]
    carried: int
    """Which leaf the value before is."""


def _chains(steps: Steps) -> list[_Chain]:
    """All of at least `FEWEST` steps in which nothing else is carried."""
    before = _links(steps)
    read = {name for name, _ in before.values()}
    found: list[_Chain] = []
    for last in before:
        if last in read:
            continue
        chain = _chain(last, before, steps)
        own = frozenset(chain.states)
        is_new = all(own.isdisjoint(it.states) for it in found)
        if len(own) >= FEWEST and is_new and _is_closed(chain, steps.graph):
            found.append(chain)
    return found


def _links(steps: Steps) -> dict[str, tuple[str, int]]:
    """For each value that another one is made like the one before, and which leaf that is."""
    found: dict[str, tuple[str, int]] = {}
    for name in steps.values_of_before():
        before, step = steps.carried_into(name), steps.step(name)
        if before is not None and step is not None and steps.are_alike(name, before):
            found[name] = (before, step.leaves.index(before))
    return found


def _chain(last: str, before: dict[str, tuple[str, int]], steps: Steps) -> _Chain:
    """The values from the first one on that is made like the last one."""
    states, carried = [last], before[last][1]
    while states[-1] in before and before[states[-1]][1] == carried:
        states.append(before[states[-1]][0])
    states.reverse()
    states += _rest(last, carried, steps)
    made = tuple(it for name in states if (it := steps.step(name)) is not None)
    return _Chain(states=tuple(states), steps=made, carried=carried)


def _rest(last: str, carried: int, steps: Steps) -> list[str]:
    """The step after the last one that a later step reads, if there is one."""
    graph, waiting, seen = steps.graph, [last], 0
    users = graph.users()
    while waiting and seen < _NEAR:
        for name in users[waiting.pop(0)]:
            seen += 1
            if not isinstance(graph[name].kind, Pointwise):
                continue
            step = steps.step(name)
            if step is not None and steps.are_alike(name, last):
                return [name] if step.leaves.index(last) == carried else []
            waiting.append(name)
    return []


def _is_closed(chain: _Chain, graph: Graph) -> bool:
    """Whether no other operand of the steps is made of their values."""
    own = frozenset(chain.states)
    reached = set(own)
    for node in graph.nodes:
        if node.name not in own and not reached.isdisjoint(node.inputs):
            reached.add(node.name)
    first, *_ = chain.steps
    read = {it for step in chain.steps for it in _others(step, chain.carried)}
    return reached.isdisjoint({*read, first.leaves[chain.carried]})


def _others(step: Step, carried: int) -> list[str]:
    return [name for place, name in enumerate(step.leaves) if place != carried]


# --- The loops ----------------------------------------------------------------------------------


def _with_chains(graph: Graph, chains: Sequence[_Chain]) -> Graph:
    """The graph with a loop for each chain, of which the values are parts."""
    work, wholes = Stacking(graph), dict[str, str]()
    for chain in chains:
        wholes |= dict.fromkeys(chain.states, _loop(chain, work))
    places = {name: at for chain in chains for at, name in enumerate(chain.states)}

    def part(node: Node) -> Node:
        kind = View(Select(0, Dim.static(places[node.name])))
        return replace(node, kind=kind, inputs=(wholes[node.name],), origin=None, part_of=None)

    nodes = [part(node) if node.name in wholes else node for node in graph.nodes]
    looped = checked(replace(graph, nodes=(*nodes, *work.made.values())))
    return checked(with_stacks(looped, frozenset(wholes.values())))


def _loop(chain: _Chain, work: Stacking) -> str:
    """The node of the values of all steps."""
    graph, carried, first = work.graph, chain.carried, chain.steps[0]
    like = graph[chain.states[0]]
    others = zip(*(_others(step, carried) for step in chain.steps), strict=True)
    inputs = (first.leaves[carried], *(_input(it, like.tensor.rank, work) for it in others))
    places = [carried, *(it for it in range(len(first.leaves)) if it != carried)]

    def placed(leaf: Expr) -> Expr:
        return Operand(places.index(leaf.index), leaf.dtype) if isinstance(leaf, Operand) else leaf

    shape = (Dim.static(len(chain.states)), *like.tensor.shape)
    name = work.add("loop", Loop(transform(first.expr, placed)), shape, like, *inputs)
    operators = (it for node in first.nodes for it in graph[node].operators)
    work.made[name] = replace(work.made[name], operators=tuple(dict.fromkeys(operators)))
    return name


def _input(names: Sequence[str], rank: int, work: Stacking) -> str:
    """A node that broadcasts to the values of all steps."""
    first = work.graph[names[0]]
    if not isinstance(first.type, TensorType) or len({work.firsts[name] for name in names}) == 1:
        return first.name
    found = work.joined(names)
    for _ in range(rank - first.type.rank):
        steps, *rest = work.node(found).tensor.shape
        shape = (steps, Dim.static(1), *rest)
        found = work.add(f"{found}_each", View(Unsqueeze(1)), shape, first, found)
    return found
