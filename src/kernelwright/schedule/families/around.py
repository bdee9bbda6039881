"""Kernels with expressions on both sides of an anchor: what scans and poolings share."""

from collections.abc import Mapping
from functools import partial

from kernelwright.ir.plan import Kernel
from kernelwright.schedule.anchored_groups import anchored_groups
from kernelwright.schedule.families.family import Description, Free, Launcher, Unit


def grow_around(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    """Every anchor of these kinds with the steps before it and after it that cost no launch."""
    graph, machine = free.graph, free.machine
    return [
        Unit(
            members=it.members,
            launch=partial(launchers[type(it.anchor.kind)], it, graph, machine),
        )
        for it in anchored_groups(graph, free.movable, tuple(launchers))
    ]


def describe_around(kernel: Kernel, what: str) -> Description:
    """What goes into the anchor, and what becomes of its result."""
    computes = (f"acc of {kernel.prologue}", f"{kernel.output} = {kernel.epilogue}")
    return Description(what=what, computes=computes)


def apart_around(first: Kernel, second: Kernel) -> str | None:
    """The reason for two anchors of these kinds, one after the other."""
    if first.prologue is not None:
        return "blocks of the second need results of many blocks of the first"
    return None
