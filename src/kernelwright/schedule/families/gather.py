"""Gathers: slices of a tensor that integers pick, as rows of an embedding."""

from collections.abc import Mapping
from functools import partial

from kernelwright.ir.configs import Config, PointwiseConfig
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Gather
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import Description, Family, Free, Launcher, Unit, Work
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library, first_reason, no_complex, rank_fits

_ACCESS_BYTES = 16


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    return [
        Unit(members=(node,), launch=partial(launchers[Gather], node, free.graph, free.machine))
        for node in free.graph.nodes
        if node.name in free.movable and isinstance(node.kind, Gather)
    ]


def _launch(node: Node, graph: Graph, machine: Machine) -> Launch:
    assert isinstance(node.kind, Gather)
    inputs = [graph[name] for name in node.inputs]
    kernel = Kernel(
        family=GATHER.name,
        anchor=node.kind,
        inputs=tuple(it.type for it in inputs),
        epilogue=None,
        outputs=(node.tensor,),
        config=_all_configs(node.tensor.dtype.itemsize)[0],
        **labels([node]),
    )
    return launched(kernel, [node], inputs)


def _all_configs(itemsize: int) -> tuple[Config, ...]:
    width = max(1, _ACCESS_BYTES // itemsize)
    return tuple(PointwiseConfig(threads=128, width=width, unroll=unroll) for unroll in (2, 1, 4))


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    return first_reason((rank_fits, no_complex), node, graph)


def _cost(kernel: Kernel) -> Work:
    # Of the first input no more than is picked.
    return Work(flops=0, unread=max(0, _bytes(kernel) - kernel.output.bytes_hint))


def _bytes(kernel: Kernel) -> int:
    return getattr(kernel.inputs[0], "bytes_hint", 0)


def _describe(kernel: Kernel) -> Description:
    dim = kernel.anchored(Gather).dim
    return Description(what=f" along {dim}", computes=(f"{kernel.output} = %0 at %1",))


GATHER = Family(
    name="gather",
    nodes=(Gather,),
    grow=_grow,
    launch=_launch,
    why_not=_why_not,
    configs=lambda kernel, machine: _all_configs(kernel.output.dtype.itemsize),
    cost=_cost,
    same_text=lambda kernel: (kernel.anchor, kernel.config),
    describe=_describe,
    holds="the first only copies what its indices pick",
)
