"""Kernels that compute element by element, around a product or nothing: how they are grown."""

from collections.abc import Mapping
from functools import partial

from kernelwright.ir.expr import has_coordinates, operations
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.plan import Kernel
from kernelwright.schedule.element_groups import element_groups
from kernelwright.schedule.families.family import Free, Launcher, Unit


def grow_elements(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    """Every product with its epilogue, and what is left of the pointwise nodes."""
    graph, machine = free.graph, free.machine
    own = (node.name for node in graph.nodes if type(node.kind) in launchers)
    groups = element_groups(graph, free.ours.intersection(own)).values()
    return [
        Unit(
            members=it.members,
            launch=partial(
                launchers[Pointwise if it.anchor is None else type(it.anchor.kind)],
                it,
                graph,
                machine,
            ),
        )
        for it in groups
    ]


def work_of(kernel: Kernel) -> int:
    """Operations of the epilogue on each element of the result."""
    assert kernel.epilogue is not None
    return operations(kernel.epilogue)


def is_located(kernel: Kernel) -> bool:
    """Whether an expression of the kernel asks where an element stands."""
    return any(map(has_coordinates, kernel.expressions))
