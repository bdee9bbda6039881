"""What rules ask about a node that follows from other nodes, kept up to date edit by edit.

A fact is told by the node and by what holds for its neighbours on one side. So it spreads from
neighbour to neighbour, and after an edit only where it changes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush

from kernelwright.ir.editing import Edit, Editor, Place
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import (
    Contract,
    Input,
    Opaque,
    Parameter,
    Pointwise,
    Project,
    Reduce,
    Scan,
    View,
    Window,
    changes,
)
from kernelwright.ir.library_calls import PRODUCT_CALLS
from kernelwright.ir.types import Dim, TensorType


class Side(Enum):
    """Which neighbours tell a fact."""

    INPUTS = "inputs"
    READERS = "readers"


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """Something that holds for some of the nodes."""

    holds: "Callable[[Facts, Node], bool]"
    """Whether it holds for a node; asks this fact of neighbours on `side` alone, and of the node
    and of these neighbours the facts in `needs`."""
    side: Side
    needs: "tuple[Fact, ...]" = ()


class Facts:
    """Which facts hold for which nodes of a graph that is edited."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self._holders: dict[Fact, set[str]] = {}
        """Facts that somebody has asked for, with the nodes for which they hold; those that others
        need come first."""
        nodes = map(editor.node, editor.ordered())
        self._mutated = {path for node in nodes for path in changes(node.kind)}
        """No rule adds or takes away a call that changes something."""

    def holds(self, fact: Fact, name: str) -> bool:
        """Whether a fact holds for a node."""
        if fact not in self._holders:
            for needed in fact.needs:
                self.holds(needed, name)
            self._holders[fact] = set()
            self._spread(fact, self.editor.ordered())
        return name in self._holders[fact]

    def is_mutated(self, path: str) -> bool:
        """Whether some call changes the buffer or argument in place."""
        return path in self._mutated

    def update(self, edit: Edit) -> dict[Fact, set[str]]:
        """Take note of an edit; the nodes for which a fact holds now, or no longer."""
        changed: dict[Fact, set[str]] = {}
        for fact in self._holders:
            touched = self._touched(fact, edit)
            for needed in fact.needs:
                touched = {*touched, *changed[needed], *self._told(fact, changed[needed])}
            changed[fact] = self._spread(fact, touched)
        return changed

    def _touched(self, fact: Fact, edit: Edit) -> set[str]:
        """The nodes for which the fact may be another one."""
        if fact.side is Side.INPUTS:
            return {*edit.records, *self._told(fact, edit.records)}
        return {*edit.records, *edit.readers, *edit.shown, *self._told(fact, edit.records)}

    def _told(self, fact: Fact, names: Iterable[str]) -> set[str]:
        """The nodes that ask these."""
        if fact.side is Side.INPUTS:
            return {reader for name in names for reader in self.editor.readers(name)}
        present = (self.editor.node(name) for name in names if name in self.editor)
        return {source for node in present for source in node.inputs}

    def _spread(self, fact: Fact, names: Iterable[str]) -> set[str]:
        """Ask these nodes, and those that ask them where the answer is new; the new ones."""
        editor, holders = self.editor, self._holders[fact]
        waiting = {name for name in names if name in editor}
        changed = {name for name in names if name not in editor and name in holders}
        holders -= changed
        queue = [(self._rank(fact, name), name) for name in waiting]
        heapify(queue)
        while queue:
            _, name = heappop(queue)
            waiting.discard(name)
            if fact.holds(self, editor.node(name)) == (name in holders):
                continue
            holders ^= {name}
            changed ^= {name}
            for other in self._told(fact, (name,)) - waiting:
                waiting.add(other)
                heappush(queue, (self._rank(fact, other), other))
        return changed

    def _rank(self, fact: Fact, name: str) -> "Place | _Backwards":
        """Those that are asked come before those that ask them."""
        place = self.editor.place(name)
        return place if fact.side is Side.INPUTS else _Backwards(place)


@dataclass(frozen=True, slots=True)
class _Backwards:
    """A place that comes before those it stands behind."""

    place: Place

    def __lt__(self, other: "_Backwards") -> bool:
        return self.place > other.place


def shape_of(node: Node) -> tuple[Dim, ...] | None:
    """The sizes of a tensor; None for anything else."""
    return node.type.shape if isinstance(node.type, TensorType) else None


# --- The facts ---------------------------------------------------------------------------------


def _is_alias(facts: Facts, node: Node) -> bool:
    match node.kind:
        case Parameter(path) | Input(path) if facts.is_mutated(path):
            return True
        case View():
            return any(facts.holds(ALIAS, name) for name in node.inputs)
    return False


def _is_ordered(facts: Facts, node: Node) -> bool:
    return any(facts.holds(ALIAS, name) for name in node.inputs)


def _is_total(facts: Facts, node: Node) -> bool:
    match node.kind:
        case Reduce():
            return True
        case Project() | Pointwise() if node.inputs:
            return all(facts.holds(TOTAL, name) for name in node.inputs)
    return False


def _is_from_anchor(facts: Facts, node: Node) -> bool:
    if isinstance(node.kind, Contract | Scan | Window) or facts.holds(TOTAL, node.name):
        return True
    if _is_product_call(node):
        return True  # Its rows are read as they lie, as those of ours.
    if not isinstance(node.kind, Pointwise):
        return False
    on_totals = any(facts.holds(TOTAL, name) for name in node.inputs)
    return on_totals or _is_beside(facts, node, FROM_ANCHOR)


def _is_from_product(facts: Facts, node: Node) -> bool:
    if isinstance(node.kind, Contract) or _is_product_call(node):
        return True
    return isinstance(node.kind, Pointwise) and _is_beside(facts, node, FROM_PRODUCT)


def _is_product_call(node: Node) -> bool:
    call = node.origin if isinstance(node.kind, Opaque) else None
    return call is not None and call.target in PRODUCT_CALLS


def _is_beside(facts: Facts, node: Node, fact: Fact) -> bool:
    """Whether the fact holds for an input of the node's size."""
    return any(
        facts.holds(fact, name) and shape_of(facts.editor.node(name)) == shape_of(node)
        for name in node.inputs
    )


def _is_before_reduction(facts: Facts, node: Node) -> bool:
    return any(
        isinstance(reader.kind, Reduce)
        or (
            isinstance(reader.kind, Pointwise)
            and shape_of(reader) == shape_of(node)
            and facts.holds(BEFORE_REDUCTION, reader.name)
        )
        for reader in map(facts.editor.node, facts.editor.readers(node.name))
    )


def _is_beside_product(facts: Facts, node: Node) -> bool:
    readers = facts.editor.readers(node.name)
    if not readers or facts.editor.is_shown(node.name) or facts.holds(FROM_PRODUCT, node.name):
        return False
    return all(
        isinstance(reader.kind, Pointwise)
        and shape_of(reader) == shape_of(node)
        and (facts.holds(FROM_PRODUCT, reader.name) or facts.holds(BESIDE_PRODUCT, reader.name))
        for reader in map(facts.editor.node, readers)
    )


ALIAS = Fact(_is_alias, Side.INPUTS)
"""A buffer or an argument that some call changes in place, or a view of one."""
ORDERED = Fact(_is_ordered, Side.INPUTS, needs=(ALIAS,))
"""What reads such a value: its place in the order matters."""
TOTAL = Fact(_is_total, Side.INPUTS)
"""What reductions make, and what is made of nothing else."""
FROM_ANCHOR = Fact(_is_from_anchor, Side.INPUTS, needs=(TOTAL,))
"""What a product, a reduction, a scan or a pooling makes, and what is made of it element by
element: work on it joins their kernel."""
FROM_PRODUCT = Fact(_is_from_product, Side.INPUTS)
"""What a product makes, and what is made of it element by element."""
BEFORE_REDUCTION = Fact(_is_before_reduction, Side.READERS)
"""What a reduction reads, or what is made of it element by element."""
BESIDE_PRODUCT = Fact(_is_beside_product, Side.READERS, needs=(FROM_PRODUCT,))
"""Values all of whose readers are work on a product, which it may join, or the same again."""
