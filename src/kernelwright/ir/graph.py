"""The tensor-level graph in SSA form: what the module computes, with no word of how."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kernelwright.ir.calls import Argument, AtenCall, refs, rename_call
from kernelwright.ir.expr import is_cast
from kernelwright.ir.kinds import (
    Conv,
    Input,
    Kind,
    Opaque,
    Parameter,
    Pointwise,
    View,
    changes,
)
from kernelwright.ir.types import ScalarType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call that the user made and that several nodes stand for, one contraction among them."""

    result: str
    """The node that holds the value of the call in the captured graph."""
    call: AtenCall
    """Reads nodes by the names of the captured graph."""
    kind: Conv | Opaque
    """The kind of one node for the whole call."""


# --- Nodes and the graph -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of the graph."""

    name: str
    """Unique, a Python identifier; names of `forward`'s arguments are kept."""
    kind: Kind
    type: ValueType
    inputs: tuple[str, ...] = ()
    """Names of the nodes it reads, in the order that `kind` numbers them."""
    origin: AtenCall | None = None
    """The call that computes this value from `inputs`' values in PyTorch; None after a rewrite."""
    part_of: UserCall | None = None
    """For the one contraction in a call of the user: that call; it outlives rewrites."""
    operators: tuple[str, ...] = ()
    """Short names of the ATen operators this node stands for, for people: ("linear", "relu")."""
    source: str | None = None
    """`file:line` in the user's file."""
    unanchored: bool = False
    """Only a kernel without an anchor computes it: one of another family would read its operands
    along the wrong dimension, or compute it twice."""

    @property
    def tensor(self) -> TensorType:
        """The type of a node that is known to be a tensor; TypeError otherwise."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self.name} is {self.type}, not a tensor")
        return self.type

    @property
    def is_scalar(self) -> bool:
        """True for a Python scalar known at call time."""
        return isinstance(self.type, ScalarType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A symbolic size and where a call finds its value."""

    name: str
    input: str
    """Name of the Input node; the value is its size `dim`, or the int itself when dim is None."""
    dim: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """At the end of a call the buffer at `path` takes the value of node `value`."""

    path: str
    value: str
    is_assigned: bool = False
    """`forward` assigns a plain attribute, which then lies where the value does: `Module.to` moves
    parameters and buffers alone, and so leaves the first one behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Something the capture specialised: a call must satisfy it or gets a ValueError."""

    condition: str
    """Python expression over arguments of `forward` and symbols."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A module's `forward`: nodes in an order that may be executed as it stands."""

    name: str
    nodes: tuple[Node, ...]
    returns: Argument
    """What `forward` returns: a Ref, or a Record of Refs and literals."""
    symbols: tuple[Symbol, ...] = ()
    updates: tuple[Update, ...] = ()
    guards: tuple[Guard, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader of the report should know, for example why sizes are static."""
    _by_name: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    _users: Mapping[str, tuple[str, ...]] | None = field(
        init=False, repr=False, compare=False, default=None
    )
    """What `users` has found."""
    _places: Mapping[str, int] | None = field(init=False, repr=False, compare=False, default=None)
    """What `places` has found."""

    def __post_init__(self) -> None:
        # Of two nodes with one name, which `ir.spec` refuses, the first.
        known = {node.name: node for node in reversed(self.nodes)}
        object.__setattr__(self, "_by_name", known)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    def find(self, name: str) -> Node | None:
        """The node of this name; None of what a kernel makes for another one alone."""
        return self._by_name.get(name)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Input nodes in the order of `forward`'s arguments."""
        return tuple(node for node in self.nodes if isinstance(node.kind, Input))

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the nodes that a caller sees: returned values and buffer updates."""
        return (*refs(self.returns), *(update.value for update in self.updates))

    def places(self) -> Mapping[str, int]:
        """Where each node stands in the order."""
        if self._places is None:
            found = {node.name: at for at, node in enumerate(self.nodes)}
            object.__setattr__(self, "_places", found)
        assert self._places is not None
        return self._places

    def users(self) -> Mapping[str, tuple[str, ...]]:
        """For each node the names of those that read it, in order (returns are not nodes)."""
        if self._users is None:
            object.__setattr__(self, "_users", self._find_users())
        assert self._users is not None
        return self._users

    def _find_users(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node.name)
        return {name: tuple(users) for name, users in found.items()}

    def readers_of_mutable(self) -> set[str]:
        """Nodes whose place in the order matters: they read a buffer or an argument that some call
        changes in place, or a view of one."""
        aliases = self.aliases_of(self.changed_in_place())
        return {node.name for node in self.nodes if not aliases.isdisjoint(node.inputs)}

    def changed_in_place(self) -> set[str]:
        """Paths of the buffers and arguments that some call changes in place."""
        return {path for node in self.nodes for path in changes(node.kind)}

    def aliases_of(self, paths: Container[str]) -> set[str]:
        """Parameters, buffers and arguments at these paths, and views of them."""
        found: set[str] = set()
        for node in self.nodes:
            match node.kind:
                case Parameter(path) | Input(path) if path in paths:
                    found.add(node.name)
                case View() if not found.isdisjoint(node.inputs):
                    found.add(node.name)
        return found

    def __str__(self) -> str:
        from kernelwright.ir.printer import print_graph

        return print_graph(self)


def made_of(names: Iterable[str], graph: Graph, apart: Container[str] = ()) -> frozenset[str]:
    """Nodes of these names, and what is made of them element by element at their own size.

    Nothing is followed through nodes in `apart`.
    """
    found = set(names)
    shapes = {
        node.name: node.type.shape for node in graph.nodes if isinstance(node.type, TensorType)
    }
    for node in graph.nodes:
        if isinstance(node.kind, Pointwise) and node.name not in apart:
            shape = shapes.get(node.name)
            if any(name in found and shapes.get(name) == shape for name in node.inputs):
                found.add(node.name)
    return frozenset(found)


def epilogues_of(names: frozenset[str], graph: Graph) -> frozenset[str]:
    """Nodes of these names, and the steps on them, at their own size, that wait for nothing else
    that is made of them: no norm, which needs totals of all elements first."""
    shapes = {
        node.name: node.type.shape for node in graph.nodes if isinstance(node.type, TensorType)
    }
    # Of each node, as bits: the names that it is made of, and those element by element.
    needed: dict[str, int] = {}
    followed: dict[str, int] = {}
    bits = 1
    for node in graph.nodes:
        own = bits if node.name in names else 0
        bits <<= own > 0
        needed[node.name] = followed[node.name] = own
        for name in node.inputs:
            needed[node.name] |= needed[name]
        if not own and isinstance(node.kind, Pointwise):
            shape = shapes.get(node.name)
            same = {
                name: followed[name] if shapes.get(name) == shape else 0 for name in node.inputs
            }
            for name in same:
                followed[node.name] |= same[name]
            for name in same:
                followed[node.name] &= ~needed[name] | same[name]
    return frozenset(name for name, found in followed.items() if found)


def widens(node: Node, find: Callable[[str], Node]) -> bool:
    """Whether a node does nothing but give the elements of another one more bytes; `find` gives
    nodes by name."""
    kind = node.kind
    if not isinstance(kind, Pointwise) or len(node.inputs) != 1:
        return False
    source = find(node.inputs[0]).type
    if not is_cast(kind.expr) or not isinstance(source, TensorType):
        return False
    if source.shape != node.tensor.shape:
        return False
    return source.dtype.itemsize < node.tensor.dtype.itemsize


def rename_inputs(node: Node, names: Mapping[str, str]) -> Node:
    """The node reading other nodes, in `inputs` and in `origin` alike."""
    if names.keys().isdisjoint(node.inputs):
        return node
    origin = None if node.origin is None else rename_call(node.origin, names)
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return replace(node, inputs=inputs, origin=origin)
