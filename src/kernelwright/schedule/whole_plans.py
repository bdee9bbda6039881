"""Convolutions whose share of a whole plan decides who computes them.

Alone, the library may be faster with one of them; but its operands are turned before it, and what
follows it is a kernel more, or one that turns the result back.
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Conv
from kernelwright.ir.plan import Einsum, Launch, Plan, TorchCall
from kernelwright.ir.types import TensorType
from kernelwright.lower.memory_format import is_on_channels_last
from kernelwright.machine import Machine
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_or_library import (
    Convolutions,
    forecast,
    is_chain,
    rounding_of,
    sizes_of,
    why_never,
)
from kernelwright.schedule.cost import cost_of_kernel
from kernelwright.schedule.families import family_of
from kernelwright.schedule.wide_ranges import why_wide

_MOST_KINDS = 4
"""Kinds of calls, alike in their sizes, that are tried: each is a plan more."""

Planner = Callable[[Convolutions], Plan]


def faster_as_wholes(
    shared: Convolutions,
    graph: Graph,
    machine: Machine,
    planned: Planner,
) -> Convolutions:
    """Who computes each convolution, where plans with those in doubt as ours are faster.

    `planned`: the plan of the graph for such a choice.
    """
    kinds = _in_doubt(shared, graph, machine)
    if not 0 < len(kinds) <= _MOST_KINDS:
        return shared
    least = plan_seconds(planned(shared), graph, machine)
    for names in kinds:
        tried = _moved(shared, names, graph, machine)
        seconds = plan_seconds(planned(tried), graph, machine)
        if seconds < least:
            shared, least = tried, seconds
    return shared


def plan_seconds(plan: Plan, graph: Graph, machine: Machine) -> float:
    """Modelled seconds of a plan's steps; ours with the margin of a model that may be wrong.

    `graph`: the one before it was lowered.
    """
    rates, known = conv_rates(machine), {node.name: node for node in graph.nodes}
    least = machine.library.cut_seconds if is_chain(graph) else 0.0
    seconds = 0.0
    for step in plan.steps:
        match step:
            case Launch(kernel=kernel):
                known_seconds = family_of(kernel).seconds(kernel, machine)
                moving = cost_of_kernel(kernel).bytes / rates.turning_bandwidth
                seconds += known_seconds or moving + machine.launches.next_seconds
            case TorchCall(result=name) if name in known and isinstance(known[name].kind, Conv):
                found = forecast(known[name], graph, machine)
                # A call that no kernel takes is in all plans.
                seconds += max(least, found.library) if found is not None else 0.0
            case TorchCall(type=kind) | Einsum(type=kind):
                moved = kind.bytes_hint if isinstance(kind, TensorType) else 0
                seconds += max(least, moved / rates.turning_bandwidth)
    return seconds


def _in_doubt(shared: Convolutions, graph: Graph, machine: Machine) -> list[tuple[str, ...]]:
    """The library's calls that may be ours, those of the same sizes together."""
    found: dict[object, tuple[str, ...]] = {}
    for name in shared.left:
        node = graph[name]
        if why_never(node, graph) is not None or why_wide(node, graph) is not None:
            continue
        times = forecast(node, graph, machine)
        if times is None or times.library < machine.library.known_seconds:
            continue
        if times.ours <= conv_rates(machine).doubt * times.library:
            kind = sizes_of(node, graph), is_on_channels_last(node)
            found[kind] = (*found.get(kind, ()), name)
    return list(found.values())


def _moved(
    shared: Convolutions, names: tuple[str, ...], graph: Graph, machine: Machine
) -> Convolutions:
    """The choice with these convolutions as ours."""
    rounding = {name: rounding_of(sizes_of(graph[name], graph), machine) for name in names}
    left = {name: why for name, why in shared.left.items() if name not in names}
    return replace(
        shared,
        left=MappingProxyType(left),
        ours=MappingProxyType({**shared.ours, **rounding}),
    )
