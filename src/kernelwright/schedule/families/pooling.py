"""Poolings: windows of an expression, and convolutions of each channel by itself."""

from math import prod

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph, Window
from kernelwright.ir.plan import AnyKernel, Kernel, Launch, WindowKernel
from kernelwright.machine import Machine
from kernelwright.schedule.anchored_groups import AnchoredGroup, expressions_of, source_shape
from kernelwright.schedule.families.around import apart_around, describe_around, grow_around
from kernelwright.schedule.families.family import Description, Family, Work, computed
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.window_configs import window_configs


def _launch(group: AnchoredGroup, graph: Graph, machine: Machine) -> Launch:
    found = expressions_of(group, graph)
    window, output = group.anchor.kind, group.root.tensor
    assert isinstance(window, Window)
    types = tuple(node.type for node in found.inputs)
    kernel = WindowKernel(
        window=window,
        source=source_shape(group, graph),
        inputs=types,
        prologue_inputs=found.prologue_inputs,
        prologue=found.prologue,
        epilogue=found.epilogue,
        output=output,
        config=window_configs(window, output, types, machine)[0],
        **labels(group.members),
    )
    return launched(kernel, [group.root], found.inputs)


def _kernel(kernel: AnyKernel) -> WindowKernel:
    assert isinstance(kernel, WindowKernel)
    return kernel


def _configs(kernel: AnyKernel, machine: Machine) -> tuple[Config, ...]:
    own = _kernel(kernel)
    return window_configs(own.window, own.output, own.inputs, machine)


def _cost(kernel: AnyKernel) -> Work:
    own = _kernel(kernel)
    taps = prod(own.window.size)
    each = taps * (operations(own.prologue) + 1) + operations(own.epilogue)
    return Work(flops=own.output.numel_hint * each)


def _same_text(kernel: AnyKernel) -> object:
    own = _kernel(kernel)
    expressions = [str(expr) for expr in own.expressions]
    return (expressions, own.window, own.prologue_inputs, own.untold, own.config)


def _describe(kernel: AnyKernel) -> Description:
    own = _kernel(kernel)
    size = " x ".join(map(str, own.window.size))
    return describe_around(own, f" {own.window.op} of {size}")


def _apart(first: AnyKernel, second: AnyKernel) -> str | None:
    if isinstance(first, Kernel):
        return "every window would compute again what it reads"
    return apart_around(first, second)


POOLING = Family(
    name="pooling",
    nodes=(Window,),
    grow=grow_around,
    launch=_launch,
    why_not=computed,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
)
