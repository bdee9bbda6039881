"""A family of kernels as one record: everything that planning asks about its kernels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.ir.configs import Config
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import Dim
from kernelwright.machine import Machine
from kernelwright.schedule.legality import Library

MOMENT_COLUMNS = 4
"""Neighbouring columns of which a lane makes moments (`column_moments.cuh`): a result has a
multiple of them, and begins within another one at a multiple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Nodes of a graph that are in no kernel yet."""

    graph: Graph
    ours: frozenset[str]
    """Nodes that some family computes and that no kernel has."""
    still: frozenset[str]
    """Nodes that keep their place, and unanchored ones: only kernels without an anchor take
    them."""
    machine: Machine

    @property
    def movable(self) -> frozenset[str]:
        """Nodes that may join a kernel around an anchor."""
        return self.ours - self.still


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Nodes that one launch computes."""

    members: tuple[Node, ...]
    launch: Callable[[], Launch]


Launcher = Callable[[Any, Graph, Machine], Launch]
"""The launch of a group of nodes, which is what its family's `grow` finds."""
Grow = Callable[[Free, Mapping[type, Launcher]], Sequence[Unit]]
"""Kernels around the anchors whose kinds have a launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operations of one launch at the captured sizes."""

    flops: int
    """Multiply-adds count two; a pointwise operation counts one, and so does adding to a total."""
    products: int | None = None
    """FLOPs among them that no program gets around; None for kernels that multiply nothing."""
    unread: int = 0
    """Bytes of the inputs that it does not read."""
    units: tuple[str, ...] = ()
    """Units besides the CUDA cores that can do them, keys of `Machine.flops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a kernel computes, for people."""

    what: str
    """Its anchor, written behind the name of its family; empty where it has none."""
    computes: tuple[str, ...]
    """A line for each expression."""


def _unrelated(first: Kernel, second: Kernel) -> str | None:
    return None


def _never(kernel: Kernel) -> bool:
    return False


def _not_alone(kernel: Kernel, place: int, own: set[int]) -> bool:
    return False


def _unknown(kernel: Kernel, machine: Machine) -> float | None:
    return None


def _as_it_is(config: Config) -> Config:
    return config


def _any_rows(config: Config) -> bool:
    return False


def _no_extreme(kernel: Kernel) -> None:
    return None


def _no_parts(kernel: Kernel) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table of families."""

    name: str
    """Also the name of its files in schedule/families and codegen/families, and of its folder in
    kernels."""
    nodes: tuple[type, ...]
    """Kinds of nodes that its kernels have as anchor, or compute where they have none."""
    grow: Grow
    """Which nodes become kernels; families that compete for nodes share it."""
    launch: Launcher
    """The launch of one group that `grow` found."""
    why_not: Callable[[Node, Graph, Machine, Library], str | None]
    """Why a node of these kinds stays PyTorch's; None where a kernel of the family computes it."""
    configs: Callable[[Kernel, Machine], tuple[Config, ...]]
    """Every legal configuration, best first by the model; at least one."""
    cost: Callable[[Kernel], Work]
    same_text: Callable[[Kernel], object]
    """What has to be equal, besides the types and operators, for one text to serve two kernels."""
    describe: Callable[[Kernel], Description]
    apart: Callable[[Kernel, Kernel], str | None] = _unrelated
    """Why a kernel does not share one with another that reads it: (producer, reader), asked of the
    reader's family."""
    holds: str | None = None
    """Why no reader shares a kernel with its kernels, where that is so for all readers."""
    writes_anywhere: Callable[[Kernel], bool] = _never
    """Whether a kernel's result may have any strides."""
    alone: Callable[[Kernel, int, set[int]], bool] = _not_alone
    """Whether the result with this number is computed from these inputs alone, element for element,
    so that it may have their memory."""
    at_any_size: Callable[[Config], Config] = _as_it_is
    """The configuration without what its launcher refuses only for being small."""
    seconds: Callable[[Kernel, Machine], float | None] = _unknown
    """Modelled seconds of a launch with the best configuration, at the captured sizes; None where
    what it moves says it."""
    wants_whole_rows: Callable[[Config], bool] = _any_rows
    """Whether the launcher leaves rows to another variant that are no whole number of vectors."""
    keeps_extremes: Callable[[Kernel], bool] = _never
    """Whether a kernel can write the extreme of each row of its result in place of the result."""
    extreme_of_rows: Callable[[Kernel], Reduction | None] = _no_extreme
    """The extreme that a kernel finds of each row of its only input; None where it does more."""
    moment_parts: Callable[[Kernel], Dim | None] = _no_parts
    """In how many parts of its rows a kernel can make the moments of its result's columns besides,
    in this configuration; None where it makes none."""


def computed(node: Node, graph: Graph, machine: Machine, library: Library) -> None:
    """No reason: a family that takes every node of its kinds."""
    return


def no_units(free: Free, launchers: Mapping[type, Launcher]) -> Sequence[Unit]:
    """Nothing: a family whose kernels are made of launches of others."""
    return ()


def never_launched(group: Any, graph: Graph, machine: Machine) -> Launch:
    """No launch: a family for which `no_units` finds no group."""
    raise AssertionError("its kernels are made of launches of other families")
