"""Graph to plan: which nodes share a kernel, and in which order everything runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from types import MappingProxyType

from kernelwright.ir.attention import Attention
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Contract,
    Conv,
    DiagEmbed,
    Flip,
    Gather,
    Opaque,
    Pad,
    Pointwise,
    Project,
    Relayout,
    Reshape,
    Roll,
    View,
    Write,
    changes,
)
from kernelwright.ir.library_calls import call_of_view
from kernelwright.ir.plan import (
    ChannelsLast,
    Einsum,
    Plan,
    Reinterpret,
    Step,
    Take,
    TorchCall,
)
from kernelwright.ir.recurrence import Recurrent
from kernelwright.lower import (
    Lowered,
    faster_on_channels_last,
    lower,
    on_channels_last,
    with_heads_read_once,
)
from kernelwright.machine import Machine
from kernelwright.schedule.attention_order import with_orders
from kernelwright.schedule.column_moments import with_column_moments
from kernelwright.schedule.conv_or_library import (
    Convolutions,
    shared_out,
    with_ours,
)
from kernelwright.schedule.copies_together import with_copies_together
from kernelwright.schedule.counters import with_counters_together
from kernelwright.schedule.families import FAMILIES
from kernelwright.schedule.families.family import Family, Free, Grow, Launcher, Unit
from kernelwright.schedule.host_bound import ours_for_the_host
from kernelwright.schedule.joined import with_parts_in_place
from kernelwright.schedule.joint_products import with_joint_products
from kernelwright.schedule.kept_extremes import with_kept_extremes
from kernelwright.schedule.legality import Library
from kernelwright.schedule.paired import with_pairs
from kernelwright.schedule.places_written import with_places_written
from kernelwright.schedule.sharing import with_shared_kernels
from kernelwright.schedule.tile_moments import with_tile_moments
from kernelwright.schedule.tile_reductions import with_tile_reductions
from kernelwright.schedule.together import with_products_together


def schedule(
    graph: Graph,
    machine: Machine,
    library: Library = Library.WHERE_FASTER,
    channels_last: frozenset[str] | None = None,
    in_place: frozenset[str] | None = None,
    convolutions: Convolutions | None = None,
) -> Plan:
    """The plan of a rewritten graph: it is lowered, then scheduled.

    `channels_last`: the convolutions that get such operands; `in_place`: the tensors whose parts
    are written where they belong; `convolutions`: who computes which. None: what is faster.
    """
    if channels_last is None:
        channels_last = faster_on_channels_last(graph, machine)
    graph = on_channels_last(graph, channels_last)
    if convolutions is None:
        convolutions = shared_out(graph, machine, library)
    lowered = lowered_with(convolutions, graph, machine)
    return schedule_lowered(lowered.graph, machine, library, in_place, convolutions)


def lowered_with(convolutions: Convolutions, graph: Graph, machine: Machine) -> Lowered:
    """The graph after all passes."""
    reduced = with_tile_reductions(with_ours(graph, convolutions, machine), machine)
    return lower(with_tile_moments(reduced, machine), machine)


def schedule_lowered(
    graph: Graph,
    machine: Machine,
    library: Library,
    in_place: frozenset[str] | None,
    convolutions: Convolutions,
    measured: Mapping[str, str | None] = MappingProxyType({}),
    together: frozenset[str] | None = None,
    pairs: frozenset[str] | None = None,
    moments: frozenset[str] | None = None,
) -> Plan:
    """The plan with the fewest modelled bytes that our families allow.

    `measured`: what a card has said of calls; `together`: launches of several products; `pairs`:
    rows that products read as such; `moments`: norms that begin with those of a kernel
    before. All as `Choices` have them.
    """
    if in_place is None and library is Library.NEVER:
        in_place = frozenset(node.name for node in graph.nodes if isinstance(node.kind, Concat))
    given = graph

    def takes(node: Node) -> bool:
        return FAMILIES["attention"].why_not(node, given, machine, library) is None

    given = graph = with_heads_read_once(graph, takes)
    graph = with_orders(graph, takes)
    candidates = {kind: family for family in FAMILIES.values() for kind in family.nodes}
    reasons = {
        node.name: _why_not(candidates[type(node.kind)], node, graph, machine, library, measured)
        for node in graph.nodes
        if type(node.kind) in candidates
    }
    taken = frozenset[str]()
    if library is not Library.NEVER:
        taken = ours_for_the_host(reasons, graph, machine) - measured.keys()
        for name in taken & reasons.keys():
            reasons[name] = FAMILIES["gemm"].why_not(graph[name], graph, machine, Library.NEVER)
    reasons.update(convolutions.left)
    ours = frozenset(name for name, reason in reasons.items() if reason is None)
    units = _units(graph, ours, machine)
    inside = {member.name for unit in units for member in unit.members}
    alone = [
        _Unit(members=(node,), made=partial(_step, node, reasons.get(node.name)))
        for node in graph.nodes
        if node.name not in inside
    ]
    made = [step for unit in _in_order([*units, *alone], graph) for step in unit.made()]
    made = with_kept_extremes(graph, made, machine)
    made = with_joint_products(graph, made, machine)
    made = with_products_together(graph, made, machine, together)
    made = with_pairs(graph, made, machine, pairs)
    made = with_copies_together(graph, made)
    graph, steps = with_parts_in_place(graph, made, machine, in_place, taken)
    graph, steps = with_places_written(graph, steps)
    steps = with_column_moments(graph, steps, moments)
    plan = Plan(graph=graph, steps=tuple(with_shared_kernels(steps)))
    return plan if library is Library.NEVER else with_counters_together(plan)


def _why_not(
    family: Family,
    node: Node,
    graph: Graph,
    machine: Machine,
    library: Library,
    measured: Mapping[str, str | None],
) -> str | None:
    """Why a node is no kernel of a family; what a card has measured goes before the model."""
    name = node.name if node.part_of is None else node.part_of.result
    why = measured.get(name)
    if why is not None and node.origin is not None:
        return why
    if name in measured and why is None:
        library = Library.NEVER
    return family.why_not(node, graph, machine, library)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Nodes that are computed together."""

    members: tuple[Node, ...]
    made: Callable[[], Sequence[Step]]
    """The steps that compute them."""


def _units(graph: Graph, ours: frozenset[str], machine: Machine) -> list[_Unit]:
    """The launches, family by family, each of what the ones before have left."""
    unanchored = (node.name for node in graph.nodes if node.unanchored)
    still = graph.readers_of_mutable().union(unanchored)
    launchers: dict[Grow, dict[type, Launcher]] = {}
    for family in FAMILIES.values():
        launchers.setdefault(family.grow, {}).update(dict.fromkeys(family.nodes, family.launch))
    found: list[Unit] = []
    for grow, kinds in launchers.items():
        taken = {member.name for unit in found for member in unit.members}
        free = Free(
            graph=graph,
            ours=ours - taken,
            still=frozenset(still),
            machine=machine,
        )
        found += grow(free, kinds)
    return [_Unit(members=it.members, made=partial(_launched, it)) for it in found]


def _launched(unit: Unit) -> Sequence[Step]:
    return (unit.launch(),)


def _in_order(units: Sequence[_Unit], graph: Graph) -> Iterator[_Unit]:
    """The units so that each comes after what it reads, otherwise as the graph has them.

    Calls that draw or change something, and what reads what they change, keep their order.
    """
    position = {node.name: at for at, node in enumerate(graph.nodes)}
    owner = {member.name: number for number, unit in enumerate(units) for member in unit.members}
    waits: list[set[int]] = [
        {owner[name] for member in unit.members for name in member.inputs} - {number}
        for number, unit in enumerate(units)
    ]
    ordered = graph.readers_of_mutable()
    fixed = [n.name for n in graph.nodes if n.name in ordered or _has_effect(n)]
    for first, second in pairwise(dict.fromkeys(owner[name] for name in fixed)):
        waits[second].add(first)
    last = [max(position[member.name] for member in unit.members) for unit in units]
    readers: dict[int, list[int]] = {}
    for number, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(number)
    ready = [(last[number], number) for number, sources in enumerate(waits) if not sources]
    heapify(ready)
    while ready:
        _, number = heappop(ready)
        yield units[number]
        for reader in readers.get(number, ()):
            waits[reader].discard(number)
            if not waits[reader]:
                heappush(ready, (last[reader], reader))


def _has_effect(node: Node) -> bool:
    is_random = isinstance(node.kind, Opaque) and node.kind.random
    return is_random or bool(changes(node.kind))


def _why_opaque(node: Node) -> str:
    known = node.kind.why if isinstance(node.kind, Opaque | Conv) else None
    return known or "kernelwright has no kernel for it"


def _step(node: Node, reason: str | None) -> list[Step]:
    """What happens to a node outside all kernels; leaves of the graph need no step."""
    why = reason or _why_opaque(node)
    match node.kind:
        case Project(index):
            return [Take(result=node.name, input=node.inputs[0], index=index)]
        case Write(path=str()):
            # The same memory, where the places are written before.
            return [
                Reinterpret(result=node.name, input=node.inputs[0], map=Reshape(), type=node.tensor)
            ]
        case View(index_map) if not isinstance(index_map, DiagEmbed | Flip | Roll):
            return [
                Reinterpret(result=node.name, input=node.inputs[0], map=index_map, type=node.tensor)
            ]
        case Contract() if node.origin is None:
            lhs, rhs = node.inputs
            return [
                Einsum(
                    result=node.name,
                    contract=node.kind,
                    inputs=(lhs, rhs),
                    type=node.tensor,
                    why=why,
                    source=node.source,
                )
            ]
        case (
            Opaque()
            | Conv()
            | Recurrent()
            | Attention()
            | View()
            | Pointwise()
            | Relayout()
            | Contract()
            | Gather()
            | Concat()
            | Write()
            | Pad()
        ):
            call = node.origin
            if call is None and isinstance(node.kind, View):  # that a rewrite has moved
                call = call_of_view(node.kind.map, node.inputs[0], node.tensor)
            assert call is not None, f"{node.name} has neither a kernel nor a call"
            return [
                TorchCall(
                    result=node.name,
                    call=call,
                    type=node.type,
                    why=why,
                    mutates=node.kind.mutates if isinstance(node.kind, Opaque) else (),
                    source=node.source,
                    channels_last=_channels_last(node),
                )
            ]
    return []


def _channels_last(node: Node) -> ChannelsLast | None:
    if not isinstance(node.kind, Conv) or node.kind.channels_last is None:
        return None
    return ChannelsLast(sizes=node.kind.channels_last, given=node.inputs[-1])
