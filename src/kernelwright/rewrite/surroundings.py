"""What a rule sees of a graph besides its node, and which nodes have seen what."""

from collections.abc import Iterable, Iterator

from kernelwright.ir.editing import Edit, Editor
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Concat, Opaque, Pointwise, Reduce, Scan, View, Window
from kernelwright.rewrite.facts import (
    BEFORE_REDUCTION,
    BESIDE_PRODUCT,
    FROM_ANCHOR,
    FROM_PRODUCT,
    ORDERED,
    Fact,
    Facts,
)

_Topic = Fact | str
"""What was asked of a node: a fact, or one of these."""
_RECORD, _READERS, _SHOWN = "record", "readers", "shown"


class Surroundings:
    """The graph's other nodes by name, what follows from them, and fresh names.

    Keeps who asked for what, so that a change is news to those nodes alone.
    """

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._facts = Facts(editor)
        self._twins = _Twins(editor)
        self._asker = ""
        self._askers: dict[tuple[_Topic, str], set[str]] = {}
        self._reserved: set[str] = set()
        """Names that the rule has asked for; they are taken when it replaces its node."""

    def begin(self, node: Node) -> None:
        """A rule begins with this node."""
        self._asker = node.name
        self._reserved.clear()

    def update(self, edit: Edit) -> set[str]:
        """Take note of an edit; the nodes for which a rule may do something else now."""
        news: list[tuple[_Topic, Iterable[str]]] = [
            (_RECORD, edit.records),
            (_READERS, edit.readers),
            (_SHOWN, edit.shown),
            *self._facts.update(edit).items(),
        ]
        told = set(edit.records) | self._twins.update(edit)
        for topic, names in news:
            for name in names:
                told |= self._askers.pop((topic, name), set())
        return {name for name in told if name in self._editor}

    def _ask(self, topic: _Topic, name: str) -> None:
        self._askers.setdefault((topic, name), set()).add(self._asker)

    def _holds(self, fact: Fact, name: str) -> bool:
        self._ask(fact, name)
        return self._facts.holds(fact, name)

    def _readers(self, name: str) -> Iterator[Node]:
        self._ask(_READERS, name)
        return map(self.node, self._editor.readers(name))

    def node(self, name: str) -> Node:
        """The node called `name`."""
        self._ask(_RECORD, name)
        return self._editor.node(name)

    def unseen(self, name: str) -> bool:
        """True when the caller never sees this value."""
        self._ask(_SHOWN, name)
        return not self._editor.is_shown(name)

    def readers(self, name: str) -> int:
        """How many nodes read this value."""
        self._ask(_READERS, name)
        return len(self._editor.readers(name))

    def is_read_only_as(self, name: str, view: Node) -> bool:
        """True if all that reads the value is this view, or others like it."""
        readers = self._readers(name)
        return all(node.kind == view.kind and node.type == view.type for node in readers)

    def is_seen_only_as(self, name: str, view: Node) -> bool:
        """True if all views of the value are like this one, whatever else reads it."""
        views = (node for node in self._readers(name) if isinstance(node.kind, View))
        return all(node.kind == view.kind and node.type == view.type for node in views)

    def is_reduced(self, name: str) -> bool:
        """True if a reduction reads the value as it is."""
        return any(isinstance(node.kind, Reduce) for node in self._readers(name))

    def is_only_read_in_windows(self, name: str) -> bool:
        """True where poolings and depthwise convolutions alone read the value."""
        return self.readers(name) > 0 and all(
            isinstance(reader.kind, Window) for reader in self._readers(name)
        )

    def has_views(self, name: str) -> bool:
        """True if a view of the value is read."""
        return any(isinstance(node.kind, View) for node in self._readers(name))

    def is_read_by_kernel(self, name: str) -> bool:
        """True if all that reads the value, through views or at once, are kernels of ours."""
        if not self.unseen(name):
            return False
        readers = list(self._readers(name))
        return bool(readers) and all(
            self.is_read_by_kernel(node.name)
            if isinstance(node.kind, View)
            else isinstance(node.kind, Concat | Pointwise | Reduce | Scan | Window)
            for node in readers
        )

    def may_move(self, node: Node) -> bool:
        """False when the value depends on when it is computed: something it reads is changed."""
        return not self._holds(ORDERED, node.name)

    def earlier_twin(self, node: Node) -> Node | None:
        """The first node that computes the very same thing, if that is not `node` itself."""
        first = self._twins.first(node)
        return None if first == node.name else self._editor.node(first)

    def is_from_anchor(self, name: str) -> bool:
        """True for what a product, a reduction, a scan or a pooling makes, and for what is made of
        it element by element: work on it joins their kernel."""
        return self._holds(FROM_ANCHOR, name)

    def is_from_product(self, name: str) -> bool:
        """True for what a product makes, and for what is made of it element by element."""
        return self._holds(FROM_PRODUCT, name)

    def joins_reduction(self, name: str) -> bool:
        """True if a reduction reads the value, or what is made of it element by element."""
        return self._holds(BEFORE_REDUCTION, name)

    def joins_product(self, name: str) -> bool:
        """True if all that reads the value, or what is made of it element by element, is work on a
        product, which it may join."""
        return self._holds(BESIDE_PRODUCT, name)

    def fresh(self, stem: str) -> str:
        """A name that no node has; each call of a rule gives another."""
        name = self._editor.fresh(stem, self._reserved)
        self._reserved.add(name)
        return name


class _Twins:
    """Nodes by their meaning, from the first question on; few rules ask."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._meanings: dict[str, object] = {}
        self._alike: dict[object, set[str]] = {}

    def first(self, node: Node) -> str:
        """The name of the first node that means the same."""
        if not self._meanings:
            for name in self._editor.ordered():
                self._add(name)
        alike = self._alike[self._meanings[node.name]]
        return min(alike, key=self._editor.place)

    def update(self, edit: Edit) -> set[str]:
        """Take note of an edit; the nodes that may have another first twin."""
        told: set[str] = set()
        for name in edit.records if self._meanings else ():
            before = self._alike.get(self._meanings.pop(name, None), set())
            before.discard(name)
            told |= before
            if name in self._editor:
                told |= self._add(name)
        return told

    def _add(self, name: str) -> set[str]:
        meaning = self._meanings[name] = _meaning(self._editor.node(name))
        alike = self._alike.setdefault(meaning, set())
        alike.add(name)
        return alike


def _meaning(node: Node) -> object:
    """Equal for nodes that compute the same thing; kinds without attributes mean their origin.

    As text, in which 1, 1.0 and True differ, and 0.0 and -0.0.
    """
    call = node.origin if isinstance(node.kind, Opaque) else None
    return (repr(node.kind), node.inputs, node.type, repr(call))
