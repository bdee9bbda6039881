"""Steps that are the same on every part of a tensor, as one step on the whole tensor.

`stacked` turns n values that are computed alike, such as a product of each step of a sequence,
into one value with a first dimension of n.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from string import ascii_letters

from kernelwright.ir.calls import rename_call
from kernelwright.ir.graph import Graph, Node, UserCall
from kernelwright.ir.kinds import (
    Concat,
    Contract,
    Kind,
    Permute,
    Pointwise,
    Reduce,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    View,
)
from kernelwright.ir.library_calls import LINEAR, call_of_concat
from kernelwright.ir.types import Dim, TensorType
from kernelwright.lower.loops.views import firsts_of_same

_DEEPEST = 24
"""Steps one after the other that are looked through."""


@dataclass(slots=True)
class Stacking:
    """Nodes that are made on the way; those of the graph stay."""

    graph: Graph
    made: dict[str, Node] = field(default_factory=dict)
    wholes: dict[str, str] = field(default_factory=dict)
    """The new node for each node of the first step."""
    firsts: dict[str, str] = field(init=False)
    """For each node of the graph the first one that has the same value."""
    _known: dict[tuple[str, ...], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.firsts = firsts_of_same(self.graph)

    def add(self, stem: str, kind: Kind, shape: Sequence[Dim], like: Node, *inputs: str) -> str:
        """A new node of the dtype and source of another; its name."""
        origin = None
        if isinstance(kind, Concat):
            origin = call_of_concat(inputs, kind.dim)
        name, number = stem, 1
        while name in self.made or name in self.graph.places():
            name, number = f"{stem}_{number}", number + 1
        self.made[name] = Node(
            name=name,
            kind=kind,
            type=TensorType(like.tensor.dtype, tuple(shape)),
            inputs=inputs,
            origin=origin,
            operators=like.operators,
            source=like.source,
        )
        return name

    def node(self, name: str) -> Node:
        """A node of the graph or a new one."""
        return self.made[name] if name in self.made else self.graph[name]

    def stacked(self, names: Sequence[str], depth: int = 0) -> str | None:
        """The node that has these values along a new first dimension, if they are computed alike.

        None where they are not.
        """
        key = tuple(names)
        if key not in self._known:
            self._known[key] = self._stacked(key, depth)
        return self._known[key]

    def joined(self, names: Sequence[str]) -> str:
        """A node for any values: by a concatenation where they are not computed alike."""
        found = self.stacked(names)
        if found is not None:
            return found
        first = self.node(names[0])
        shape = first.tensor.shape
        parts = [
            self.add(f"{it}_step", View(Unsqueeze(0)), (Dim.static(1), *shape), first, it)
            for it in names
        ]
        whole = (Dim.static(len(names)), *shape)
        return self.add(f"{first.name}_steps", Concat(0), whole, first, *parts)

    def _stacked(self, names: tuple[str, ...], depth: int) -> str | None:
        nodes = [self.node(name) for name in names]
        first = nodes[0]
        if depth > _DEEPEST or not isinstance(first.type, TensorType):
            return None
        if any(it.type != first.type or len(it.inputs) != len(first.inputs) for it in nodes):
            return None
        whole = self._parts(nodes)
        if whole is not None:
            return whole
        if any(it.kind != first.kind for it in nodes):
            return None
        match first.kind:
            case Pointwise() | Contract() | Concat() | Reduce() | View(Unsqueeze() | Squeeze()):
                return self._mapped(nodes, depth)
        return None

    def _parts(self, nodes: Sequence[Node]) -> str | None:
        """The tensor of which these are parts along a dimension, one behind the other."""
        first = nodes[0]
        match first.kind:
            case View(Select(dim, index)) if index.is_static:
                source = self.node(first.inputs[0])
            case _:
                return None
        if len({self._first(it.inputs[0]) for it in nodes}) > 1 or any(
            it.kind != View(Select(dim, Dim.static(index.hint + at))) for at, it in enumerate(nodes)
        ):
            return None
        count, shape = Dim.static(len(nodes)), list(source.tensor.shape)
        found = source.name
        if shape[dim] != count:
            shape[dim] = count
            part = View(Slice(dim, index, Dim.static(index.hint + len(nodes)), 1))
            found = self.add(f"{found}_part", part, shape, source, found)
        if dim == 0:
            return found
        order = (dim, *(it for it in range(len(shape)) if it != dim))
        turned = [shape[it] for it in order]
        return self.add(f"{source.name}_steps", View(Permute(order)), turned, source, found)

    def _first(self, name: str) -> str:
        return self.firsts.get(name, name)

    def _mapped(self, nodes: Sequence[Node], depth: int) -> str | None:
        """The nodes' operation on whole tensors; inputs that all share stay as they are."""
        first = nodes[0]
        inputs: list[str] = []
        is_whole: list[bool] = []
        for place, name in enumerate(first.inputs):
            each = [it.inputs[place] for it in nodes]
            shared = len({self._first(it) for it in each}) == 1
            found = name if shared else self.stacked(each, depth + 1)
            if found is None:
                return None
            inputs.append(found)
            is_whole.append(not shared)
        kind = self._kind(first, is_whole)
        if kind is None or not any(is_whole):
            return None
        shape = (Dim.static(len(nodes)), *first.tensor.shape)
        found = self.add(f"{first.name}_steps", kind, shape, first, *inputs)
        self.wholes[first.name] = found
        self.wholes.update(zip(first.inputs, inputs, strict=True))
        return found

    def give_calls(self) -> None:
        """The user's calls to the products that can be called so for all steps."""
        for name, whole in self.wholes.items():
            user, new = self.node(name).part_of, self.made.get(whole)
            if user is None or new is None or user.call.target != LINEAR:
                continue
            if user.result in self.wholes and new.inputs[1] == self.node(name).inputs[1]:
                call = rename_call(user.call, self.wholes)
                part_of = UserCall(self.wholes[user.result], call, user.kind)
                self.made[whole] = replace(new, part_of=part_of)

    def _kind(self, node: Node, is_whole: Sequence[bool]) -> Kind | None:
        """The operation with a dimension in front of those inputs and of the result."""
        match node.kind:
            case Pointwise():
                # Inputs broadcast by their last dimensions.
                ranks = [self.graph[name].type for name in node.inputs]
                fits = all(
                    not whole or (isinstance(it, TensorType) and it.rank == node.tensor.rank)
                    for it, whole in zip(ranks, is_whole, strict=True)
                )
                return node.kind if fits else None
            case Contract(lhs, rhs, out):
                new = next(it for it in ascii_letters if it not in lhs + rhs)
                left, right = (new * it for it in is_whole)
                return Contract(left + lhs, right + rhs, new + out)
            case Concat(dim):
                return Concat(dim + 1) if all(is_whole) else None
            case Reduce(op, dims):
                return Reduce(op, tuple(dim + 1 for dim in dims))
            case View(Unsqueeze(dim)):
                return View(Unsqueeze(dim + 1))
            case View(Squeeze(dims)):
                return View(Squeeze(tuple(dim + 1 for dim in dims)))
        return None


def with_stacks(graph: Graph, sources: frozenset[str]) -> Graph:
    """The graph in which values of all steps that are put side by side are computed together.

    Only values that are made of parts of `sources`; nodes need not be in order afterwards.
    """
    work = Stacking(graph)
    replaced = {}
    for node in graph.nodes:
        whole = _of_stack(node, work, sources)
        if whole is not None:
            replaced[node.name] = whole
    work.give_calls()
    nodes = (replaced.get(node.name, node) for node in graph.nodes)
    return replace(graph, nodes=(*nodes, *work.made.values()))


def _of_stack(node: Node, work: Stacking, sources: frozenset[str]) -> Node | None:
    """A node for the same value as a concatenation of values of all steps; None of another."""
    if not isinstance(node.kind, Concat):
        return None
    dim, graph = node.kind.dim, work.graph
    parts = [graph[name] for name in node.inputs]
    if any(it.kind != View(Unsqueeze(dim)) for it in parts):
        return None
    values = [it.inputs[0] for it in parts]
    if not _reads(values[-1], graph, sources):
        return None
    whole = work.stacked(values)
    rank = node.tensor.rank
    order = tuple(0 if at == dim else at + (at < dim) for at in range(rank))
    if whole is not None:
        return replace(node, kind=View(Permute(order)), inputs=(whole,), origin=None, part_of=None)
    # Some sequences begin with what the first step reads. A kernel writes the rest behind it.
    rest = work.stacked(values[1:])
    if rest is None:
        return None
    first = work.node(values[0]).tensor.shape
    head = work.add(
        f"{values[0]}_first", View(Unsqueeze(0)), (Dim.static(1), *first), node, values[0]
    )
    whole = work.add(
        f"{node.name}_steps", Concat(0), (Dim.static(len(values)), *first), node, head, rest
    )
    return replace(node, kind=View(Permute(order)), inputs=(whole,), origin=None, part_of=None)


def _reads(name: str, graph: Graph, sources: frozenset[str]) -> bool:
    """Whether a value is made of a part of one of the sources, a few steps away at most."""
    waiting, seen = [name], set[str]()
    while waiting and len(seen) < _DEEPEST:
        node = graph[waiting.pop()]
        if node.name in sources:
            return True
        if node.name not in seen:
            seen.add(node.name)
            waiting += node.inputs
    return False
