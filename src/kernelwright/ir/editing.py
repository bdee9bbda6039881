"""One editor of graphs for all rooms: an edit costs what it touches, however large the graph is.

editor = Editor(graph)
editor.replace(editor.node("x"), (early, late))
editor.drop_unread()
graph = editor.graph()
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kernelwright.ir.calls import rename
from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import Input, Opaque, changes

Place = tuple[int, ...]
"""Where a node stands: places are ordered, and between two there is always room for more."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What changed since the last time that somebody asked, by name."""

    records: frozenset[str]
    """Nodes that are new, gone or another record."""
    readers: frozenset[str]
    """Nodes that others read than before."""
    shown: frozenset[str]
    """Nodes that the caller sees now, or no longer."""


class Editor:
    """A graph on its way to another one."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: dict[str, Node] = {}
        self._places: dict[str, Place] = {}
        self._readers: dict[str, set[str]] = {}
        self._results = {name: name for name in graph.results}
        """What each result of the graph is called now."""
        self._shown = {name: {name} for name in graph.results}
        """The results of the graph that a node is now."""
        self._free: dict[str, int] = {}
        """By stem, a number below which all are taken."""
        self._records: set[str] = set()
        self._reread: set[str] = set()
        self._reshown: set[str] = set()
        for at, node in enumerate(graph.nodes):
            self._put(node, (at,))
        self._unread = [node.name for node in reversed(graph.nodes)]
        """Nodes that may have lost their last reader."""
        self._records.clear()
        self._reread.clear()

    # --- What there is ---------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node(self, name: str) -> Node:
        """The node called `name`."""
        return self._nodes[name]

    def place(self, name: str) -> Place:
        """Where the node stands: nodes that it reads stand before it."""
        return self._places[name]

    def readers(self, name: str) -> set[str]:
        """Names of the nodes that read this value, in no order."""
        return self._readers.get(name, set())

    def is_shown(self, name: str) -> bool:
        """Whether the caller sees this value."""
        return name in self._shown

    def ordered(self, names: Iterable[str] | None = None) -> list[str]:
        """The names in the order of the graph; all there are by default."""
        return sorted(self._nodes if names is None else names, key=self._places.__getitem__)

    def fresh(self, stem: str, reserved: set[str]) -> str:
        """The stem with the least number of which no node has the name, nor is it reserved."""
        number = self._free.get(stem, 1)
        while f"{stem}_{number}" in self._nodes:
            number += 1
        self._free[stem] = number
        while f"{stem}_{number}" in self._nodes or f"{stem}_{number}" in reserved:
            number += 1
        return f"{stem}_{number}"

    def named(self, stem: str, reserved: Collection[str]) -> str:
        """The stem, numbered where a node has that name or it is reserved."""
        name, number = stem, 1
        while name in self._nodes or name in reserved:
            name, number = f"{stem}_{number}", number + 1
        return name

    def graph(self) -> Graph:
        """The graph as it is now."""
        names = self._results
        return replace(
            self._graph,
            nodes=tuple(self._nodes[name] for name in self.ordered()),
            returns=rename(self._graph.returns, names),
            updates=tuple(
                replace(update, value=names.get(update.value, update.value))
                for update in self._graph.updates
            ),
        )

    # --- Edits -----------------------------------------------------------------------------------

    def replace(self, old: Node, new: tuple[Node, ...]) -> None:
        """Put `new` where `old` is; readers of `old` read the last of `new`.

        `new` may hold nodes that are in the graph already, which then simply take over. The name of
        `old` counts: what it reads may have been replaced since the record was looked at.
        """
        old = self._nodes[old.name]
        place, last = self._places[old.name], new[-1].name
        made = [node for node in new if node.name not in self._nodes or node.name == old.name]
        self._take(old)
        self._give_back(old.name)
        if last != old.name:
            for reader in tuple(self.readers(old.name)):
                node, where = self._nodes[reader], self._places[reader]
                self._take(node)
                self._put(rename_inputs(node, {old.name: last}), where)
            self._show(old.name, last)
        for number, node in enumerate(made):
            self._put(node, place if len(made) == 1 else (*place, number))
        self._unread += [node.name for node in new]

    def changes(self) -> Edit:
        """What changed since this was asked last."""
        edit = Edit(*map(frozenset, (self._records, self._reread, self._reshown)))
        for names in (self._records, self._reread, self._reshown):
            names.clear()
        return edit

    def take_away(self, name: str) -> None:
        """Take a node away that others still read: the next edit gives its name to another."""
        self._take(self._nodes[name])

    def drop_unread(self) -> None:
        """Drop the nodes that neither the caller nor an effect needs; inputs always stay."""
        while self._unread:
            node = self._nodes.get(self._unread.pop())
            if node is None or self.readers(node.name) or self.is_shown(node.name):
                continue
            if not _has_effect(node):
                self._take(node)
                self._give_back(node.name)

    def _show(self, old: str, last: str) -> None:
        """The caller sees another node in place of one."""
        results = self._shown.pop(old, set())
        if results:
            self._results.update(dict.fromkeys(results, last))
            self._shown[last] = self._shown.get(last, set()) | results
            self._reshown |= {old, last}

    def _put(self, node: Node, place: Place) -> None:
        self._nodes[node.name] = node
        self._places[node.name] = place
        self._records.add(node.name)
        for name in node.inputs:
            self._readers.setdefault(name, set()).add(node.name)
            self._reread.add(name)

    def _take(self, node: Node) -> None:
        del self._nodes[node.name]
        del self._places[node.name]
        self._records.add(node.name)
        for name in set(node.inputs):
            self._readers[name].discard(node.name)
            self._reread.add(name)
            self._unread.append(name)

    def _give_back(self, name: str) -> None:
        """Nodes may have the name again."""
        stem, _, number = name.rpartition("_")
        if number.isdecimal() and int(number) < self._free.get(stem, 0):
            self._free[stem] = int(number)


def drop_unread(graph: Graph) -> Graph:
    """Without the nodes that neither the caller nor an effect needs; inputs always stay."""
    needed = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in needed or _has_effect(node):
            needed.update(node.inputs)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))


def _has_effect(node: Node) -> bool:
    match node.kind:
        case Input() | Opaque(random=True):
            return True
    return bool(changes(node.kind))
