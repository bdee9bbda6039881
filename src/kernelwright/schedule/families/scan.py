"""Scans: running totals of an expression along a dimension."""

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph, Scan
from kernelwright.ir.plan import AnyKernel, Launch, ScanKernel
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
    kernel = ScanKernel(
        scan=scan,
        inputs=types,
        prologue=found.prologue,
        epilogue=found.epilogue,
        output=output,
        config=scan_configs(scan, output, types, machine)[0],
        **labels(group.members),
    )
    return launched(kernel, [group.root], found.inputs)


def _kernel(kernel: AnyKernel) -> ScanKernel:
    assert isinstance(kernel, ScanKernel)
    return kernel


def _configs(kernel: AnyKernel, machine: Machine) -> tuple[Config, ...]:
    own = _kernel(kernel)
    return scan_configs(own.scan, own.output, own.inputs, machine)


def _cost(kernel: AnyKernel) -> Work:
    own = _kernel(kernel)
    each = operations(own.prologue) + operations(own.epilogue) + 1
    return Work(flops=own.output.numel_hint * each)


def _same_text(kernel: AnyKernel) -> object:
    own = _kernel(kernel)
    return ([str(expr) for expr in own.expressions], own.scan, own.config)


def _describe(kernel: AnyKernel) -> Description:
    own = _kernel(kernel)
    order = ", reverse" * own.scan.reverse + ", exclusive" * own.scan.exclusive
    return describe_around(own, f" {own.scan.op} along {own.scan.dim}{order}")


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
