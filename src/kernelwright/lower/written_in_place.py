"""Arguments and buffers of which a call changes some places: these are written where they are.

A cache of keys and values takes a step's new ones so. What the call has read of it before would be
another value afterwards: then a copy is made, which goes back at the end, as the graph says.
"""

from collections.abc import Iterator
from dataclasses import replace

from kernelwright.ir.calls import AtenCall, Ref, refs
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand, Size
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Input, Opaque, Parameter, Pointwise, View, Write
from kernelwright.ir.library_calls import CLONE, COPY_INTO
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType


def with_writes_in_place(graph: Graph) -> Graph:
    """The graph where every `Write` that may be is in place, and the others are selections."""
    if not any(isinstance(node.kind, Write) for node in graph.nodes):
        return graph
    finder = _Finder(graph)
    paths: dict[str, str] = {}
    copies: set[str | None] = set()
    for path, value, copy in finder.changed():
        chain = finder.chain(path, value, copy)
        paths |= dict.fromkeys(chain, path)
        copies |= {copy} if chain else set()
    names = {node.name for node in graph.nodes}
    nodes = (it for node in graph.nodes for it in _lowered(node, paths, graph, names))
    return replace(
        graph,
        nodes=tuple(node for node in nodes if node.name not in copies),
        updates=tuple(it for it in graph.updates if it.value not in paths),
    )


class _Finder:
    """Writes whose result an argument or a buffer takes in the end."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._users = graph.users()
        self._returned = set(refs(graph.returns))
        self._owners: dict[str, list[str]] = {}
        for node in graph.nodes:
            match node.kind:
                case Input(path) | Parameter(path):
                    self._owners.setdefault(path, []).append(node.name)

    def changed(self) -> Iterator[tuple[str, str, str | None]]:
        """Paths, the values that they take, and for an argument the call that copies these."""
        for node in self._graph.nodes:
            match node.kind, node.origin:
                case Opaque(mutates=(path,)), AtenCall() as call if call.target == COPY_INTO:
                    yield path, node.inputs[1], node.name
        for update in self._graph.updates:
            if not update.is_assigned:
                yield update.path, update.value, None

    def chain(self, path: str, value: str, copy: str | None) -> list[str]:
        """The writes from the value back to what `path` names; none where they must not be there.

        Nothing else may read what one of them changes, nor a view of that be given back.
        """
        owners = self._owners.get(path, [])
        found: list[str] = []
        node, readers = self._graph[value], {copy}
        if len(owners) != 1 or node.type != self._graph[owners[0]].type:
            return []
        if self._gives_views_back(value) or (copy is not None and self._is_read(copy)):
            return []
        while isinstance(node.kind, Write):
            found.append(node.name)
            whole = self._graph[node.inputs[0]]
            readers = {node.name, copy} if whole.name == owners[0] else {node.name}
            if not readers.issuperset(self._users[whole.name]) or whole.name in self._returned:
                return []
            node = whole
        return found if node.name == owners[0] else []

    def _is_read(self, name: str) -> bool:
        return bool(self._users[name]) or name in self._returned

    def _gives_views_back(self, name: str) -> bool:
        """Whether the caller gets a view, which might be a copy in the user's module."""
        views = [it for it in self._users[name] if isinstance(self._graph[it].kind, View)]
        return any(it in self._returned or self._gives_views_back(it) for it in views)


def _lowered(node: Node, paths: dict[str, str], graph: Graph, names: set[str]) -> Iterator[Node]:
    """The node, and before it what it needs now."""
    if not isinstance(node.kind, Write):
        yield node
    elif node.name in paths:
        part = graph[node.inputs[1]]
        copy = Node(
            name=fresh_name(f"{part.name}_written", names),
            kind=Pointwise(Operand(0, part.tensor.dtype)),
            type=part.type,
            inputs=(part.name,),
            origin=AtenCall(CLONE, (Ref(part.name),)),
            operators=node.operators,
            source=node.source,
        )
        yield copy
        kind = replace(node.kind, path=paths[node.name])
        yield replace(node, kind=kind, inputs=(node.inputs[0], copy.name), origin=None)
    else:
        yield replace(node, kind=_selection(node, graph) or Opaque())


def _selection(node: Node, graph: Graph) -> Pointwise | None:
    """New elements where they stand and old ones elsewhere; None where new ones change along."""
    assert isinstance(node.kind, Write)
    whole, part = (graph[name].tensor for name in node.inputs)
    if part.shape[node.kind.dim] != ONE:
        return None
    at = Coordinate(node.kind.dim - whole.rank)
    there = Call("eq", (at, _number(node.kind.start)), DType.BOOL)
    old, new = (Operand(index, whole.dtype) for index in (0, 1))
    return Pointwise(Call("where", (there, new, old), whole.dtype))


def _number(size: Dim) -> Expr:
    return Literal(size.hint, DType.I64) if size.is_static else Size(size)
