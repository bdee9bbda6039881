"""Reductions over several dimensions in stages: along some, and then what is left of these.

A row of channels that each have their own bias has another operand for each of its elements; a row
of one channel has the same for all, and few of its totals are left for the second stage.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.expr import Call, Operand, Size
from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import Kind, Pointwise, Project, Reduce, Reduction
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType, TupleType
from kernelwright.lower.hoisting import hoisted
from kernelwright.machine import Machine

_OF_TOTALS = (
    Reduction.SUM,
    Reduction.PRODUCT,
    Reduction.MAXIMUM,
    Reduction.MINIMUM,
    Reduction.ANY,
    Reduction.ALL,
)
"""Reductions whose totals are reduced as the elements are."""
_ROUNDED = (DType.F16, DType.BF16)
"""Totals of parts would lose digits in these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A reduction as several; the values are the same."""

    nodes: tuple[Node, ...]
    totals: tuple[Node, ...]
    """Those of the nodes that hold what the reduction gives, in its order."""


def has_stages(node: Node) -> bool:
    """Whether totals of parts are enough to compute those of the whole."""
    kinds = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return (
        isinstance(node.kind, Reduce)
        and node.kind.op in (*_OF_TOTALS, Reduction.MOMENTS)
        and not any(isinstance(it, TensorType) and it.dtype in _ROUNDED for it in kinds)
    )


def in_stages(
    node: Node, source: Node, stages: Sequence[tuple[int, ...]], taken: set[str], stem: str
) -> Staged:
    """A reduction of `source`, as this node does it, along these dimensions one after the other."""
    assert isinstance(node.kind, Reduce)
    writer = _Writer(node, taken, stem)
    if node.kind.op is Reduction.MOMENTS and len(stages) > 1:
        first = writer.totals(Reduction.MOMENTS, source, stages[0])
        totals = writer.moments(first, source.tensor.shape, stages)
    else:
        totals = (source,)
        for stage in stages:
            totals = writer.totals(node.kind.op, totals[0], stage)
    return Staged(nodes=tuple(writer.nodes), totals=totals)


def moments_of_parts(
    node: Node,
    first: tuple[Node, Node],
    sizes: Sequence[Dim],
    stages: Sequence[tuple[int, ...]],
    taken: set[str],
) -> Staged:
    """Moments as this node has them, of a tensor of these sizes.

    `first`: mean and squared distances along the first of the stages.
    """
    writer = _Writer(node, taken, node.name)
    totals = writer.moments(first, sizes, stages)
    return Staged(nodes=tuple(writer.nodes), totals=totals)


class _Writer:
    """Nodes that do parts of what one reduction did."""

    def __init__(self, node: Node, taken: set[str], stem: str) -> None:
        self._node = node
        self._taken = taken
        self._stem = stem
        self.nodes: list[Node] = []

    def moments(
        self, first: Sequence[Node], sizes: Sequence[Dim], stages: Sequence[tuple[int, ...]]
    ) -> tuple[Node, ...]:
        """Mean and squared distances, of parts of as many elements each and then of these.

        `first`: those of the first stage, of a tensor of these sizes.
        """
        mean, spread = first
        counts = [sizes[dim] for dim in stages[0]]
        for stage in stages[1:]:
            mean, between = self.totals(Reduction.MOMENTS, mean, stage)
            (inside,) = self.totals(Reduction.SUM, spread, stage)
            spread = self._whole_spread(inside, between, product(counts))
            counts += [sizes[dim] for dim in stage]
        return mean, spread

    def _whole_spread(self, inside: Node, spread: Node, count: Dim) -> Node:
        """Squared distances from the mean of all, of parts of this many elements: those from the
        part's own mean, and for each element the part's mean's."""
        dtype = inside.tensor.dtype
        distance = Call("mul", (Operand(1, dtype), Size(count, dtype)), dtype)
        kind = Pointwise(Call("add", (Operand(0, dtype), distance), dtype))
        name = f"{self._node.name}_spread"
        return self._made(name, kind, inside.tensor, (inside.name, spread.name))

    def totals(self, op: Reduction, source: Node, dims: tuple[int, ...]) -> tuple[Node, ...]:
        """One reduction, and its totals."""
        own = source.tensor
        shape = tuple(ONE if dim in dims else size for dim, size in enumerate(own.shape))
        if op.totals == 1:
            whole = self._node.type
            dtype = whole.dtype if isinstance(whole, TensorType) else own.dtype
            kind = TensorType(dtype, shape)
            return (self._made(self._stem, Reduce(op, dims), kind, (source.name,)),)
        assert isinstance(self._node.type, TupleType)
        items = (it for it in self._node.type.items if isinstance(it, TensorType))
        kinds = tuple(TensorType(item.dtype, shape) for item in items)
        pair = self._made(self._stem, Reduce(op, dims), TupleType(kinds), (source.name,))
        return tuple(
            self._made(f"{self._stem}_{at}", Project(at), kind, (pair.name,))
            for at, kind in enumerate(kinds)
        )

    def _made(
        self, stem: str, kind: Kind, type_: TensorType | TupleType, inputs: tuple[str, ...]
    ) -> Node:
        made = replace(
            self._node,
            name=fresh_name(stem, self._taken),
            kind=kind,
            type=type_,
            inputs=inputs,
            origin=None,
            part_of=None,
        )
        self.nodes.append(made)
        return made


# --- Where operands differ along a row -----------------------------------------------------------


def with_stages(graph: Graph, machine: Machine) -> Graph:
    """The graph whose rows have one value of each smaller operand; the values are the same."""
    known = {node.name: node for node in graph.nodes}
    varying = _varying(graph.nodes, known)
    stages = {node.name: _stages(node, known, varying, machine) for node in graph.nodes}
    shown = [known[name] for name in graph.results]
    fixed = {node.name for node in shown}
    fixed |= {node.inputs[0] for node in shown if isinstance(node.kind, Project)}
    split = {name for name, found in stages.items() if found} - fixed
    taken = set(known)
    names: dict[str, str] = {}
    totals: dict[str, tuple[Node, ...]] = {}
    made: dict[str, Node] = {}
    for node in graph.nodes:
        if node.name in split:
            found = in_stages(node, known[node.inputs[0]], stages[node.name], taken, node.name)
            totals[node.name] = found.totals
            made |= {it.name: it for it in found.nodes}
            names[node.name] = found.totals[0].name
        elif isinstance(node.kind, Project) and node.inputs[0] in split:
            names[node.name] = totals[node.inputs[0]][node.kind.index].name
        else:
            node = rename_inputs(node, names)
            made |= {it.name: it for it in _in_parts(node, made, taken, machine)}
    return replace(graph, nodes=tuple(made.values()))


def _in_parts(
    node: Node, made: Mapping[str, Node], taken: set[str], machine: Machine
) -> tuple[Node, ...]:
    """The node, and before it what it would compute anew for each element from totals."""
    sources = [made[name] for name in node.inputs]
    if (
        not isinstance(node.kind, Pointwise)
        or not any(isinstance(it.kind, Reduce | Project) for it in sources)
        or node.tensor.bytes_hint < machine.launches.stage_bytes
    ):
        return (node,)
    types = {it.name: it.type for it in sources}
    found = hoisted(node, types, fresh_name(f"{node.name}_part", taken))
    return (*found.parts, found.rest) if found.parts else (node,)


def _stages(
    node: Node,
    known: Mapping[str, Node],
    varying: Mapping[str, frozenset[int]],
    machine: Machine,
) -> tuple[tuple[int, ...], ...]:
    """Dimensions of two stages; none where one is better."""
    if not isinstance(node.kind, Reduce) or not has_stages(node):
        return ()
    source = known[node.inputs[0]]
    rank, dims = source.tensor.rank, node.kind.dims
    last = max((dim for dim in varying.get(source.name, ()) if dim in dims), default=None)
    if last is None or source.tensor.bytes_hint < machine.launches.stage_bytes:
        return ()
    inside = tuple(dim for dim in dims if dim > last)
    is_run = inside == tuple(range(last + 1, rank))
    long = prod(source.tensor.shape[dim].hint for dim in inside) >= machine.launches.stage_elements
    return (inside, tuple(dim for dim in dims if dim <= last)) if is_run and long else ()


def _varying(nodes: Iterable[Node], known: Mapping[str, Node]) -> dict[str, frozenset[int]]:
    """For each step, dimensions along which its smaller operands differ, and those of the steps of
    its shape in front of it."""
    found: dict[str, frozenset[int]] = {}
    for node in nodes:
        if isinstance(node.kind, Pointwise) and isinstance(node.type, TensorType):
            own = (_varying_in(known[name], node.tensor.shape, found) for name in node.inputs)
            found[node.name] = frozenset().union(*own)
    return found


def _varying_in(
    source: Node, shape: tuple[Dim, ...], found: Mapping[str, frozenset[int]]
) -> frozenset[int]:
    kind = source.type
    if not isinstance(kind, TensorType):
        return frozenset()
    if kind.shape == shape:
        return found.get(source.name, frozenset())
    first = len(shape) - kind.rank
    return frozenset(first + at for at, size in enumerate(kind.shape) if size != ONE)
