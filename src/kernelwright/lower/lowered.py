"""A graph while it is lowered, and a pass over it."""

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.ir.graph import Graph
from kernelwright.machine import Machine

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A graph that computes the same as before, and what the schedule must know of its nodes."""

    graph: Graph
    channels_last: frozenset[str]
    """Convolutions that are to have operands of this memory format, by their node."""
    turning: frozenset[str] = _NONE
    """Nodes that read one memory format and write another: only kernels without an anchor do."""
    small: frozenset[str] = _NONE
    """Copies of few elements that save their reader time: no part of it."""
    apart: frozenset[str] = _NONE
    """Nodes that no kernel for rows computes on the way."""
    whole: frozenset[str] = _NONE
    """Steps on convolutions of ours, which stay on whole channels."""
    changed: tuple[str, ...] = ()
    """Names of the passes that changed the graph, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision about how a graph is computed, for all of its nodes."""

    name: str
    what: str
    """What it changes and why, a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Decision):
    """A decision that is made for a rewritten graph."""

    run: Callable[[Lowered, Machine], Lowered]
