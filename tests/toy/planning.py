"""Row of a family for the table of schedule/families: lines that are flipped."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Flip, View
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import Description, Family, Free, Launcher, Unit, Work
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipConfig:
    threads: int

    def __str__(self) -> str:
        return f"{self.threads} threads"


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    is_line = isinstance(node.kind.map, Flip) and node.tensor.rank == 1
    return None if is_line else "it is no flipped line"


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    return [
        Unit(members=(node,), launch=partial(launchers[View], node, free.graph, free.machine))
        for node in free.graph.nodes
        if node.name in free.movable and isinstance(node.kind, View)
    ]


def _launch(node: Node, graph: Graph, machine: Machine) -> Launch:
    source = graph[node.inputs[0]]
    kernel = Kernel(
        family=FLIP.name,
        anchor=node.kind,
        inputs=(source.type,),
        epilogue=None,
        outputs=(node.tensor,),
        config=FlipConfig(threads=128),
        **labels([node]),
    )
    return launched(kernel, [node], [source])


FLIP = Family(
    name="flip",
    nodes=(View,),
    grow=_grow,
    launch=_launch,
    why_not=_why_not,
    configs=lambda kernel, machine: (FlipConfig(threads=128), FlipConfig(threads=256)),
    cost=lambda kernel: Work(flops=0),
    same_text=lambda kernel: kernel.config,
    describe=lambda kernel: Description(what=" of a line", computes=()),
)
