"""Scans: running totals of an expression along a dimension."""

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Scan
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.machine import Machine
from kernelwright.schedule.anchored_groups import AnchoredGroup, expressions_of
from kernelwright.schedule.families.around import apart_around, describe_around, grow_around
from kernelwright.schedule.families.family import Description, Family, Work, computed
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.scan_configs import scan_configs


def _launch(group: AnchoredGroup, graph: Graph, machine: Machine) -> Launch:
    found = expressions_of(group, graph)
    scan, output = group.anchor.kind, group.root.tensor
    assert isinstance(scan, Scan)
    types = tuple(node.type for node in found.inputs)
    kernel = Kernel(
        family=SCAN.name,
        anchor=scan,
        inputs=types,
        prologue=found.prologue,
        epilogue=found.epilogue,
        outputs=(output,),
        config=scan_configs(scan, output, types, machine)[0],
        **labels(group.members),
    )
    return launched(kernel, [group.root], found.inputs)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return scan_configs(kernel.anchored(Scan), kernel.output, kernel.inputs, machine)


def _cost(kernel: Kernel) -> Work:
    each = sum(map(operations, kernel.expressions)) + 1
    return Work(flops=kernel.output.numel_hint * each)


def _same_text(kernel: Kernel) -> object:
    return ([str(expr) for expr in kernel.expressions], kernel.anchor, kernel.config)


def _describe(kernel: Kernel) -> Description:
    scan = kernel.anchored(Scan)
    order = ", reverse" * scan.reverse + ", exclusive" * scan.exclusive
    return describe_around(kernel, f" {scan.op} along {scan.dim}{order}")


SCAN = Family(
    name="scan",
    nodes=(Scan,),
    grow=grow_around,
    launch=_launch,
    why_not=computed,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=apart_around,
)
