"""One driver for every table of rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from kernelwright.ir.editing import Editor
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.spec import check
from kernelwright.rewrite.surroundings import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of a table: where it applies and what it puts there."""

    name: str
    """For reports: "product with a diagonal matrix is a scaling"."""
    match: Callable[[Surroundings, Node], tuple[Node, ...] | None]
    """The nodes that replace one node, the last of which stands for it; None: does not apply."""
    algebraic: bool = False
    """Changes the number of operations by more than 2x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One application of a rule, for people."""

    rule: str
    operators: tuple[str, ...]
    """The operators that the new node stands for."""
    source: str | None
    """`file:line` of the replaced node."""
    algebraic: bool

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{' + '.join(self.operators)}{where}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A graph and how it came about."""

    graph: Graph
    applied: tuple[Applied, ...]

    @property
    def algebraic(self) -> bool:
        """True when any rule changed the amount of work by more than 2x."""
        return any(item.algebraic for item in self.applied)


def apply(rules: Sequence[Rule], graph: Graph) -> Rewritten:
    """Apply the rules, each time to the first node to which one applies, until none does.

    A node is tried again only when something changed that its rules asked for.
    """
    editor = Editor(graph)
    around = Surroundings(editor)
    applied: list[Applied] = []
    waiting = {node.name for node in graph.nodes}
    queue = [(editor.place(name), name) for name in waiting]
    heapify(queue)
    while queue:
        place, name = heappop(queue)
        # A node that is gone, or that stands elsewhere since, has another entry or none.
        if name not in waiting or name not in editor or editor.place(name) != place:
            continue
        waiting.discard(name)
        node = editor.node(name)
        step = _first_match(rules, around, node)
        if step is None:
            continue
        rule, new = step
        applied.append(_record(rule, node, new))
        editor.replace(node, new)
        # What is read by nobody any more may not keep a rule from applying to its inputs.
        editor.drop_unread()
        changed = around.update(editor.changes())
        waiting |= changed
        for other in changed:
            heappush(queue, (editor.place(other), other))
    editor.drop_unread()
    found = editor.graph()
    # A part of a graph that was in order is in order: most tables of rules find nothing in a graph.
    return Rewritten(graph=check(found) if applied else found, applied=tuple(applied))


def _first_match(
    rules: Sequence[Rule], around: Surroundings, node: Node
) -> tuple[Rule, tuple[Node, ...]] | None:
    for rule in rules:
        around.begin(node)
        new = rule.match(around, node)
        if new is not None:
            return rule, new
    return None


def _record(rule: Rule, node: Node, new: tuple[Node, ...]) -> Applied:
    return Applied(
        rule=rule.name,
        operators=new[-1].operators,
        source=node.source,
        algebraic=rule.algebraic,
    )
