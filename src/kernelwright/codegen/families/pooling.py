"""Pooling as CUDA text: a functor, and the ways to go over its windows."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, STORED
from kernelwright.codegen.surroundings import Device, Surroundings, Variant, surroundings
from kernelwright.ir.anchors import PooledSource, untold_sizes
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.plan import Kernel
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay

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
        moments=kernel.moments,
    )
    launch = "window_channel_moments.cuh" if kernel.moments else "window_launch.cuh"
    return KernelText(section=section, sources=(launch,), has_workspace=False)


def _traits(kernel: Kernel) -> tuple[str, ...]:
    """What the kernels know of the windows when they are compiled."""
    window = kernel.anchored(PooledSource).window
    dims = len(window.size)
    own = zip(window.size, window.stride, window.padding, window.dilation, strict=True)
    axes = ((1, 1, 0, 1),) * (len(_AXES) - dims) + tuple(own)
    is_staged = kernel.configured(WindowConfig).way in (WindowWay.BANDS, WindowWay.CHANNELS)
    return (
        f"static constexpr Pooling POOLING = Pooling::{window.op.name};",
        f"static constexpr int DIMS = {dims};",
        *(
            f"using {name} = Axis<{', '.join(map(str, axis))}>;"
            for name, axis in zip(_AXES, axes, strict=True)
        ),
        *(_staged(kernel) if is_staged else ()),
    )


def _staged(kernel: Kernel) -> tuple[str, ...]:
    """What is kept of the source, without rounding: the 16-bit numbers that were widened, if it is
    such."""
    before = kernel.expressions[0]
    kept = before
    if isinstance(before, Call) and before.op == "cast":
        (inner,) = before.args
        kept = inner if inner.dtype in (DType.F16, DType.BF16) else before
    is_copied = isinstance(kept, Operand)
    kind = (STORED if is_copied or kept is not before else COMPUTED)[kept.dtype]
    return (
        f"using Staged = {kind};",
        f"static constexpr bool IS_COPIED = {str(is_copied).lower()};",
        f"static constexpr bool IS_UPPER_HALF = {str(kept.dtype is DType.BF16).lower()};",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """The operand of a dot product that belongs to neither expression."""

    tensor: str
    stored: str


def _weights(kernel: Kernel, functor: Surroundings) -> _Weights | None:
    kind = kernel.inputs[-1]
    if not kernel.anchored(PooledSource).window.op.has_weights or not isinstance(kind, TensorType):
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
        WindowWay.BANDS: ("BandVariant", "window_bands"),
        WindowWay.CHANNELS: ("ChannelVariant", "window_channels"),
    }[config.way]
    runs: Mapping[WindowWay, str] = {
        WindowWay.TILES: f"BYTES = {config.shared}",
        WindowWay.FLAT: f"OUTPUTS = {config.outputs}",
    }
    members: tuple[str, ...] = (
        f"int THREADS = {config.threads}, VECTOR = {config.vector}",
        f"int OUTPUTS = {config.outputs}, STEPS = {config.steps}",
        (
            f"int STORE = {config.store}, BYTES = {config.shared}"
            if config.way is WindowWay.BANDS
            else f"int PLANES = {config.planes}, AHEAD = {config.ahead}"
        ),
        f"unsigned REPEATED = {_repeated(kernel, functor)}",
    )
    why = "Rows of whole vectors"
    if config.way in runs:
        members = (f"int THREADS = {config.threads}, {runs[config.way]}",)
        why = "Planes that are runs of memory"
    elif config.way is WindowWay.CHANNELS:
        alike, of_plane = _alike(kernel, functor)
        members = (*members[:2], f"unsigned ALIKE = {alike}, PLANE = {of_plane}")
        why = "Channels that are whole vectors"
        if kernel.moments:
            template, function = "ChannelMomentVariant", "window_channel_moments"
            why += ", moments of the parts that its blocks have"
    variant = Variant(
        suffix="Tuned",
        why=why,
        template=template,
        members=members,
        kernels=(Device(name=f"{kernel.name}_kernel", function=function),),
        pointers=(f"{kernel.name}_kernel",),
        blocks=config.blocks,
    )
    return (variant,)


def _repeated(kernel: Kernel, functor: Surroundings) -> str:
    """A bit for each operand of the prologue that has one element for all columns, and, of bands,
    for each of the epilogue that has one for a plane."""
    tensors = [kind for kind in kernel.inputs if isinstance(kind, TensorType)]
    types = dict(zip(functor.tensors, tensors, strict=True))
    before, after = functor.methods
    is_banded = kernel.configured(WindowConfig).way is WindowWay.BANDS
    dims = [*[1] * len(before.tensors), *[2] * (len(after.tensors) if is_banded else 0)]
    bits = 0
    for at, (name, last) in enumerate(zip(functor.operands, dims, strict=False)):
        if all(dim == ONE for dim in types[name].shape[-last:]):
            bits |= 2 << at
    return f"0x{bits:x}" if bits else "0"


def _alike(kernel: Kernel, functor: Surroundings) -> tuple[str, str]:
    """A bit for each operand that has one element for all channels, which are last; and for each
    that has one row and column, but for a source by itself, which has zeros around it."""
    tensors = [kind for kind in kernel.inputs if isinstance(kind, TensorType)]
    types = dict(zip(functor.tensors, tensors, strict=True))
    is_alone = len(functor.methods[0].tensors) == 1
    alike = of_plane = 0
    for at, name in enumerate(functor.operands):
        *plane, channels = types[name].shape[-3:] or (ONE,)
        alike |= (channels == ONE) << at + 1
        is_source = at == 0 and is_alone
        of_plane |= (not is_source and all(dim == ONE for dim in plane)) << at + 1
    return f"0x{alike:x}", f"0x{of_plane:x}"


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
