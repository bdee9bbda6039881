"""A lowered graph, and a pass over it."""

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.ir.graph import Graph
from kernelwright.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A graph that computes the same as before."""

    graph: Graph
    """Its types have layouts."""
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

    run: Callable[[Graph, Machine], Graph]
