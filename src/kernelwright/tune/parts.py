"""Parts of a plan against the calls that they replace: which of the two a card computes sooner.

parts = parts_of(plan, captured, machine)
measured = decided(parts, LaunchTimer(library, device), CallTimer(captured, device))
plan = plan_graph(captured, machine, library, Choices(measured=measured)).plan
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from kernelwright.bench.timing import Stopwatch
from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.interpreter import GraphRun
from kernelwright.ir.kinds import Contract, Conv, Pointwise, View
from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import ValueType
from kernelwright.machine import Machine
from kernelwright.tune.measuring import KernelTimer, random_operand
from kernelwright.tune.tuner import Failure, Timing, Variant

_WARM_UP_SECONDS = 0.02
_SAMPLES = 12
CLEARLY = 1.02
"""A part goes back where it takes longer than the library by more than this: what a median of so
few samples is known to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A launch that one call of the user stands for, besides steps on single elements."""

    kernel: Kernel
    """At the sizes of this launch."""
    node: str
    """What `Choices.measured` knows it by."""
    call: AtenCall
    operands: Mapping[str, ValueType]
    """Types of what the call reads."""
    symbols: Mapping[str, int]
    """Captured values of the sizes that it names."""
    rest_seconds: float
    """Modelled seconds of a kernel for the other steps of the launch."""

    @property
    def name(self) -> str:
        """The operator, for people: `conv2d`."""
        return self.call.target.split(".")[1]


def parts_of(plan: Plan, captured: Graph, machine: Machine) -> tuple[Part, ...]:
    """The launches that can go back to the library, each without the others."""
    known = {it.name: it.type for it in (*plan.graph.nodes, *captured.nodes)}
    symbols = MappingProxyType(_hints(captured))
    found = (
        _part(step, plan.graph, known, symbols, machine)
        for step in plan.steps
        if isinstance(step, Launch)
    )
    return tuple(part for part in found if part is not None)


def _part(
    launch: Launch,
    graph: Graph,
    known: Mapping[str, ValueType],
    symbols: Mapping[str, int],
    machine: Machine,
) -> Part | None:
    members = _members(launch, graph)
    anchors = [it for it in members if isinstance(it.kind, Contract | Conv | Attention | Recurrent)]
    if len(anchors) != 1:
        return None
    (node,) = anchors
    call = node.origin if node.part_of is None else node.part_of.call
    if call is None or any(name not in known for name in call.refs):
        return None
    has_steps = any(isinstance(it.kind, Pointwise) for it in members)
    moved = sum(2 * kind.bytes_hint for kind in launch.kernel.outputs)
    return Part(
        kernel=launch.kernel,
        node=node.name if node.part_of is None else node.part_of.result,
        call=call,
        operands=MappingProxyType({name: known[name] for name in call.refs}),
        symbols=symbols,
        rest_seconds=moved / machine.copy_bandwidth if has_steps else 0.0,
    )


def _members(launch: Launch, graph: Graph) -> list[Node]:
    """The nodes between what a launch reads and what it gives."""
    known = {node.name: node for node in graph.nodes}
    waiting, found = list(launch.results), dict[str, Node]()
    while waiting:
        name = waiting.pop()
        # A result that is part of another one's memory has no node of its own.
        if name in found or name in launch.inputs or name not in known:
            continue
        found[name] = known[name]
        waiting += known[name].inputs
    return [it for it in found.values() if not isinstance(it.kind, View)]


def _hints(graph: Graph) -> dict[str, int]:
    return {
        symbol.name: graph[symbol.input].tensor.shape[symbol.dim].hint
        for symbol in graph.symbols
        if symbol.dim is not None
    }


# --- What goes where ---------------------------------------------------------------------------

Seconds = Callable[[Part], float | None]
"""Seconds of one side of a part; None where it does not run."""


def decided(parts: Iterable[Part], ours: Seconds, theirs: Seconds) -> dict[str, str | None]:
    """For `Choices.measured`: why the library computes a part, None where ours is no slower.

    Parts of which a side does not run are not decided.
    """
    found: dict[str, str | None] = {}
    for part in parts:
        own, other = ours(part), theirs(part)
        if own is None or other is None:
            continue
        other += part.rest_seconds
        is_slower = own > CLEARLY * other
        why = f"measured {other * 1e6:.3g} us, ours {own * 1e6:.3g} us"
        found[part.node] = why if is_slower else None
    return found


def sentence(parts: Iterable[Part], measured: Mapping[str, str | None]) -> str:
    """What was kept and why, in one line."""
    known = [part for part in parts if part.node in measured]
    back = [part for part in known if measured[part.node] is not None]
    if not back:
        return f"all of {len(known)} kernels timed alone are no slower than the calls they replace"
    given = "; ".join(dict.fromkeys(f"{part.name} {measured[part.node]}" for part in back))
    kept = len(known) - len(back)
    return f"{kept} of {len(known)} kernels timed alone are kept, given back to PyTorch: {given}"


# --- On the card -------------------------------------------------------------------------------


class LaunchTimer:
    """Seconds of parts as launches of a built library, equal ones once."""

    def __init__(self, library: Path, device: torch.device) -> None:
        self._library = library
        self._device = device
        self._known: dict[object, float | None] = {}

    def __call__(self, part: Part) -> float | None:
        kernel = part.kernel
        key = (kernel.name, kernel.inputs, kernel.outputs)
        if key not in self._known:
            timer = KernelTimer(kernel, self._device)
            timer.prepare()
            name = f"launch_{kernel.name}"
            outcome = timer(Variant(config={}, source="", function=name), self._library)
            self._known[key] = seconds_of(outcome)
        return self._known[key]


def seconds_of(outcome: Timing | Failure) -> float | None:
    """Seconds of what ran."""
    return outcome.seconds if isinstance(outcome, Timing) else None


class CallTimer:
    """Seconds of parts as calls of PyTorch, equal ones once."""

    def __init__(self, captured: Graph, device: torch.device) -> None:
        self._captured = captured
        self._device = device
        self._stopwatch = Stopwatch(device)
        self._known: dict[object, float | None] = {}

    def __call__(self, part: Part) -> float | None:
        """The median of device spans with a flushed L2."""
        key = kind_of(part)
        if key not in self._known:
            try:
                self._known[key] = self._time(part)
            except (RuntimeError, TypeError):  # An operand's values may matter: an index.
                self._known[key] = None
        return self._known[key]

    @torch.no_grad()
    def _time(self, part: Part) -> float:
        run = GraphRun(self._captured, nn.Module(), {})
        run.device = self._device
        run.symbols.update(part.symbols)
        run.values.update(
            {name: random_operand(kind, self._device) for name, kind in part.operands.items()}
        )
        self._stopwatch.warm_up(lambda _: run.call(part.call), _WARM_UP_SECONDS)
        times = sorted(self._stopwatch.sample(lambda _: run.call(part.call), _SAMPLES).device_ms)
        return times[len(times) // 2] / 1e3


def kind_of(part: Part) -> tuple[str, ...]:
    """What equal calls have in common: operator, arguments and types, without names."""
    names = {name: f"%{at}" for at, name in enumerate(part.operands)}
    words = re.split(r"(\W+)", str(part.call))
    return ("".join(names.get(it, it) for it in words), *map(str, part.operands.values()))
