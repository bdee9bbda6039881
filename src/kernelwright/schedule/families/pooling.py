"""Poolings: windows of an expression, and convolutions of each channel by itself."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from kernelwright.ir.anchors import PooledSource, RowProgram, untold_sizes
from kernelwright.ir.configs import Config
from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Window
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import Machine
from kernelwright.schedule.anchored_groups import AnchoredGroup, expressions_of, source_shape
from kernelwright.schedule.channel_tiles import ChannelTiles
from kernelwright.schedule.families.around import apart_around, describe_around, grow_around
from kernelwright.schedule.families.family import Description, Family, Work, computed
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.window_bands import Bands
from kernelwright.schedule.window_channels import Channels
from kernelwright.schedule.window_configs import window_configs

_MODELS: Mapping[WindowWay, type[Bands] | type[Channels]] = {
    WindowWay.BANDS: Bands,
    WindowWay.CHANNELS: Channels,
}
"""What tells the seconds of a kernel."""


def _launch(group: AnchoredGroup, graph: Graph, machine: Machine) -> Launch:
    found = expressions_of(group, graph)
    window, output = group.anchor.kind, group.root.tensor
    assert isinstance(window, Window)
    types = tuple(node.type for node in found.inputs)
    pooled = PooledSource(
        window=window,
        source=source_shape(group, graph),
        prologue_inputs=found.prologue_inputs,
    )
    kernel = Kernel(
        family=POOLING.name,
        anchor=pooled,
        inputs=types,
        prologue=found.prologue,
        epilogue=found.epilogue,
        outputs=(output,),
        config=window_configs(window, output, types, machine, found.prologue_inputs)[0],
        **labels(group.members),
    )
    return launched(kernel, [group.root], found.inputs)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    pooled = kernel.anchored(PooledSource)
    found = window_configs(
        pooled.window, kernel.output, kernel.inputs, machine, pooled.prologue_inputs
    )
    if not kernel.makes_moments:
        return found
    (parts, *_) = kernel.outputs[-1].shape
    return tuple(it for it in found if _moment_parts(replace(kernel, config=it)) == parts)


def _seconds(kernel: Kernel, machine: Machine) -> float | None:
    pooled, config = kernel.anchored(PooledSource), kernel.configured(WindowConfig)
    if config.way not in _MODELS:
        return None
    modelled = _MODELS[config.way](
        window=pooled.window,
        output=kernel.output,
        tensors=tuple(kind for kind in kernel.inputs if isinstance(kind, TensorType)),
        prologue_inputs=pooled.prologue_inputs,
        config=config,
        machine=machine,
    )
    return modelled.seconds


def _moment_parts(kernel: Kernel) -> Dim | None:
    """In how many parts a kernel makes moments of the channels of its result, which are last
    (`window_channel_moments.cuh`)."""
    config, output = kernel.configured(WindowConfig), kernel.output
    if config.way is not WindowWay.CHANNELS or output.dtype is not DType.F32:
        return None
    window = kernel.anchored(PooledSource).window
    tiles = ChannelTiles(window=window, output=output, config=config)
    is_static = output.shape[-1].is_static
    return tiles.parts if is_static and tiles.has_room_for_moments else None


def _cost(kernel: Kernel) -> Work:
    taps = prod(kernel.anchored(PooledSource).window.size)
    before, after = map(operations, kernel.expressions)
    return Work(flops=kernel.output.numel_hint * (taps * (before + 1) + after))


def _same_text(kernel: Kernel) -> object:
    pooled = kernel.anchored(PooledSource)
    expressions = [str(expr) for expr in kernel.expressions]
    untold = untold_sizes(pooled.source, kernel.inputs[: pooled.prologue_inputs])
    own = (kernel.config, kernel.moments)
    return (expressions, pooled.window, pooled.prologue_inputs, untold, own)


def _describe(kernel: Kernel) -> Description:
    window = kernel.anchored(PooledSource).window
    return describe_around(kernel, f" {window.op} of {' x '.join(map(str, window.size))}")


def _apart(first: Kernel, second: Kernel) -> str | None:
    if first.prologue is not None or isinstance(first.anchor, RowProgram):
        return apart_around(first, second)
    return "every window would compute its elements again"


POOLING = Family(
    name="pooling",
    nodes=(Window,),
    grow=grow_around,
    launch=_launch,
    why_not=computed,
    configs=_configs,
    seconds=_seconds,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    moment_parts=_moment_parts,
)
