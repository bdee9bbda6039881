"""Pooling as CUDA text: a functor, and the ways to go over its windows."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.codegen.surroundings import Device, Surroundings, Variant, surroundings
from kernelwright.ir.anchors import PooledSource, untold_sizes
from kernelwright.ir.configs import WindowConfig, WindowWay
from kernelwright.ir.kinds import Pooling
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, TensorType

_AXES = ("Depth", "Height", "Width")


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that pools."""
    pooled = kernel.anchored(PooledSource)
    functor = surroundings(kernel)
    section = TEMPLATES.get_template("pooling.cu.jinja").render(
        **heading(kernel),
        functor=functor,
        traits=_traits(kernel),
        stored=STORED[kernel.output.dtype],
        variants=(*_tuned(kernel, functor), _any(kernel)),
        arguments=read_inputs(kernel, functor.tensors, functor.members),
        source=_source(pooled, kernel),
        weights=_weights(kernel, functor),
    )
    return KernelText(section=section, sources=("window_launch.cuh",), has_workspace=False)


def _traits(kernel: Kernel) -> tuple[str, ...]:
    """What the kernels know of the windows when they are compiled."""
    window = kernel.anchored(PooledSource).window
    dims = len(window.size)
    own = zip(window.size, window.stride, window.padding, window.dilation, strict=True)
    axes = ((1, 1, 0, 1),) * (len(_AXES) - dims) + tuple(own)
    return (
        f"static constexpr Pooling POOLING = Pooling::{window.op.name};",
        f"static constexpr int DIMS = {dims};",
        *(
            f"using {name} = Axis<{', '.join(map(str, axis))}>;"
            for name, axis in zip(_AXES, axes, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """The operand of a dot product that belongs to neither expression."""

    tensor: str
    stored: str


def _weights(kernel: Kernel, functor: Surroundings) -> _Weights | None:
    kind = kernel.inputs[-1]
    if kernel.anchored(PooledSource).window.op is not Pooling.DOT or not isinstance(
        kind, TensorType
    ):
        return None
    return _Weights(tensor=functor.tensors[-1], stored=STORED[kind.dtype])


def _source(pooled: PooledSource, kernel: Kernel) -> str:
    """Sizes of the source that no operand tells."""
    untold = untold_sizes(pooled.source, kernel.inputs[: pooled.prologue_inputs])
    known = untold[-len(pooled.window.size) :]
    sizes = [1 if dim is None else dim.hint for dim in known]
    return ", ".join(map(str, [1] * (len(_AXES) - len(sizes)) + sizes))


def _tuned(kernel: Kernel, functor: Surroundings) -> tuple[Variant, ...]:
    """The variant that the config describes, unless it is the general one."""
    config = kernel.configured(WindowConfig)
    if config.way is WindowWay.ELEMENTS:
        return ()
    template, function = {
        WindowWay.WALK: ("WalkVariant", "window_walk"),
        WindowWay.LINES: ("LinesVariant", "window_lines"),
        WindowWay.TILES: ("TileVariant", "window_tiles"),
        WindowWay.FLAT: ("FlatVariant", "window_flat"),
    }[config.way]
    runs: Mapping[WindowWay, str] = {
        WindowWay.TILES: f"BYTES = {config.shared}",
        WindowWay.FLAT: f"OUTPUTS = {config.outputs}",
    }
    members: tuple[str, ...] = (
        f"int THREADS = {config.threads}, VECTOR = {config.vector}",
        f"int OUTPUTS = {config.outputs}, STEPS = {config.steps}",
        f"int PLANES = {config.planes}, AHEAD = {config.ahead}",
        f"unsigned REPEATED = {_repeated(kernel, functor)}",
    )
    if config.way in runs:
        members = (f"int THREADS = {config.threads}, {runs[config.way]}",)
    variant = Variant(
        suffix="Tuned",
        why="Planes that are runs of memory" if config.way in runs else "Rows of whole vectors",
        template=template,
        members=members,
        kernels=(Device(name=f"{kernel.name}_kernel", function=function),),
        pointers=(f"{kernel.name}_kernel",),
        blocks=config.blocks,
    )
    return (variant,)


def _repeated(kernel: Kernel, functor: Surroundings) -> str:
    """A bit for each operand of the prologue that has one element for all columns."""
    tensors = [kind for kind in kernel.inputs if isinstance(kind, TensorType)]
    types = dict(zip(functor.tensors, tensors, strict=True))
    bits = 0
    for at, name in enumerate(functor.methods[0].tensors):
        shape = types[name].shape
        if not shape or shape[-1] == Dim.static(1):
            bits |= 2 << at
    return f"0x{bits:x}" if bits else "0"


def _any(kernel: Kernel) -> Variant:
    name = f"{kernel.name}_general_kernel"
    return Variant(
        suffix="General",
        why="Any strides and alignment",
        template="AnyWindowVariant",
        members=("int THREADS = 256",),
        kernels=(Device(name=name, function="window_any"),),
        pointers=(name,),
    )


POOLING = Writer(emit=emit)
