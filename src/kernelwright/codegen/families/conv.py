"""Convolutions as CUDA text: a functor, and the variants that run it."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright import kernels
from kernelwright.codegen.expressions import ExpressionWriter, Member, operand_name
from kernelwright.codegen.families.writer import RoundingSizes, Writer
from kernelwright.codegen.finishing import in_two_steps
from kernelwright.codegen.functor import Functor, camel_case, functor_of, stored
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.anchors import Convolution
from kernelwright.ir.conv_configs import ConvConfig, ConvStore, DirectConfig, Rounding
from kernelwright.ir.expr import Accumulator, Expr, Operand, walk
from kernelwright.ir.kinds import Conv
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.schedule.conv_configs import general_config
from kernelwright.schedule.families.conv import sizes_of_kernel
from kernelwright.schedule.tile_programs import LOG_SHARES, SHARES

_PROGRAMS = {SHARES: "ChannelShares", LOG_SHARES: "ChannelLogShares"}
"""Programs whose channels have a result each (conv_totals.cuh)."""
_LINEAR_CHUNK = 8
"""Channels of a tap whose patches are runs of pixels (`ConvTile::IS_LINEAR`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """What totals of channels become."""

    name: str
    statements: tuple[str, ...] = ()
    value: str = ""
    """Expression of the result for all channels; empty where the device library has the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A functor, and the tensors that it is called with an element of."""

    functor: Functor
    inputs: tuple[int, ...]
    """Which of the kernel's."""
    tensors: tuple[str, ...]
    """Their names in the launcher."""
    types: tuple[str, ...]
    """C++ types of operands (conv_epilogue.cuh)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """One way to compute that the launcher chooses from."""

    suffix: str
    why: str
    device: str
    """Which device code: "tensor", "direct" or "any"."""
    members: tuple[str, ...]
    """Declarations in its config; none for any sizes."""
    kernel: str
    """After the kernel's name."""
    pointers: tuple[str, ...]
    config: ConvConfig | None = None
    """The configuration of device code "tensor"."""


def emit(kernel: Kernel) -> KernelText:
    """The text of a convolution and its epilogue."""
    anchor = kernel.anchored(Convolution)
    tiles = 3 if anchor.has_bias else 2
    before, after = _steps(kernel, tiles)
    steps = (before, after) if before else (after,)
    # Each is read once, in the order of the kernel's inputs, whichever steps want it.
    operands = {
        name: at for step in steps for name, at in zip(step.tensors, step.inputs, strict=True)
    }
    tensors = ["data", "filter", "own_bias"][:tiles]
    tensors += sorted(operands, key=operands.__getitem__)
    data = kernel.inputs[0]
    assert isinstance(data, TensorType)
    section = TEMPLATES.get_template("conv.cu.jinja").render(
        **heading(kernel),
        functor=after.functor,
        input=STORED[data.dtype],
        result=STORED[kernel.outputs[0].dtype],
        operands=[*after.types],
        is_late=_is_late(kernel, after),
        own_variants=_variants(kernel),
        before=before.functor if before else None,
        before_operands=[*before.types] if before else [],
        reduces=anchor.conv.reduction is not None,
        folds=_folds(anchor),
        program=_program(kernel),
        moments=_moments(anchor),
        windows=_windows(anchor),
        outputs=_outputs(anchor),
        arguments=read_inputs(kernel, tensors, _members(kernel, before, after)),
        rounds=rounds(kernel),
        direction="TRANSPOSED" if anchor.conv.transposed else "USUAL",
        groups=anchor.conv.groups,
        geometry=_geometry(anchor.conv),
        tensors=tensors,
        bias="own_bias" if anchor.has_bias else "Tensor{}",
        before_tensors=[*before.tensors] if before else [],
        after_tensors=[*after.tensors],
    )
    is_direct = isinstance(kernel.config, DirectConfig)
    own = ("conv_direct.cuh",) if is_direct else ("conv_launch.cuh", "wgmma_f16.cuh")
    sources = (*own, "conv_choice.cuh", "conv_any.cuh", "conv_epilogue.cuh")
    if _moments(anchor) is not None:
        sources += ("conv_moments_launch.cuh",)
    absent = _absent(kernel, after)
    return KernelText(section=section, sources=sources, has_workspace=True, absent=absent)


def _absent(kernel: Kernel, after: _Step) -> frozenset[str]:
    """Facts of conv_facts.cuh that are false of the kernel, and those of products."""
    configs = [variant.config for variant in _variants(kernel) if variant.config is not None]
    windows, channels = _folds(kernel.anchored(Convolution))
    has_program = _program(kernel) is not None
    present = {
        "ANY_LINEAR": any(it.chunk == _LINEAR_CHUNK for it in configs),
        "ANY_JOINED": any(it.joined > 0 or it.outputs > 1 for it in configs),
        "ANY_STORED_ROWS": any(it.store is ConvStore.ROWS for it in configs),
        "ANY_LATE": _is_late(kernel, after),
        "ANY_WINDOWS": windows != "NONE",
        "ANY_CHANNEL_FOLDS": channels != "NONE" or has_program,
        "ANY_PROGRAMS": has_program,
        "ANY_MOMENTS": _moments(kernel.anchored(Convolution)) is not None,
    }
    absent = {name for name, is_present in present.items() if not is_present}
    return frozenset(absent.union(kernels.facts("gemm_facts.cuh")))


def _steps(kernel: Kernel, tiles: int) -> tuple[_Step | None, _Step]:
    """What is computed of each result before something is made of several, and after.

    Where nothing is made of several, the first is what no operand's place matters for.
    """
    epilogue, inputs = kernel.epilogue, range(tiles, len(kernel.inputs))
    assert epilogue is not None
    if kernel.prologue is not None:
        of_first = inputs[: kernel.anchored(Convolution).conv.operands]
        rest = inputs[len(of_first) :]
        own = functor_of(kernel.prologue, kernel, of_first, of_first.start, "Step")
        made = stored(functor_of(epilogue, kernel, rest, rest.start), kernel)
        return (
            _step(kernel, own, of_first, of_first.start, "before_"),
            _step(kernel, made, rest, rest.start),
        )
    unplaced = {it for it in inputs if not _is_by_place(kernel, kernel.inputs[it])}
    split = in_two_steps(epilogue, unplaced) if len(unplaced) < len(inputs) else None
    if split is None:
        alone = stored(functor_of(epilogue, kernel, inputs, tiles), kernel)
        return None, _step(kernel, alone, inputs, tiles)
    first, second = _read(split.before), _read(split.after)
    last = stored(functor_of(split.after, kernel, second, tiles), kernel)
    return (
        _step(kernel, functor_of(split.before, kernel, first, tiles, "Step"), first, tiles),
        _step(kernel, last, second, tiles),
    )


def _step(
    kernel: Kernel, functor: Functor, inputs: Sequence[int], first: int, prefix: str = ""
) -> _Step:
    kinds = [(it, kernel.inputs[it]) for it in inputs]
    read = [(it, kind) for it, kind in kinds if isinstance(kind, TensorType)]
    templates = ("ByPlace" if _is_by_place(kernel, kind) else "ByChannel" for _, kind in read)
    return _Step(
        functor=functor,
        inputs=tuple(it for it, _ in read),
        tensors=tuple(f"{prefix}{operand_name(it, first)}" for it, _ in read),
        types=tuple(
            f"{template}<{STORED[kind.dtype]}>"
            for template, (_, kind) in zip(templates, read, strict=True)
        ),
    )


def _read(expr: Expr) -> list[int]:
    return sorted({part.index for part in walk(expr) if isinstance(part, Operand)})


def _is_by_place(kernel: Kernel, kind: ValueType) -> bool:
    """Whether it has more than one element along a dimension other than the channels'."""
    spatial = len(kernel.anchored(Convolution).conv.stride)
    if not isinstance(kind, TensorType):
        return False
    others = [dim for at, dim in enumerate(reversed(kind.shape)) if at != spatial]
    return any(it.text != "1" for it in others)


def _is_late(kernel: Kernel, after: _Step) -> bool:
    """Whether the last functor is applied where elements are stored, not to each register: it must
    be where it reads something by its place, and is slower (docs/measured/convolution.md)."""
    reads_by_place = any(text.startswith("ByPlace") for text in after.types)
    # What is reduced to one has a step where its elements are stored, or none.
    reduction = kernel.anchored(Convolution).conv.reduction
    is_one = reduction is not None and not reduction.keeps_channels
    is_after = is_one and not isinstance(kernel.epilogue, Accumulator)
    return is_after or reads_by_place


def rounds(kernel: Kernel) -> bool:
    """Whether its first variant is for the captured sizes alone, and while TF32 is allowed."""
    return kernel.anchored(Convolution).rounding is Rounding.MEASURED_SIZES


def _members(kernel: Kernel, before: _Step | None, after: _Step) -> tuple[Member, ...]:
    """All run-time numbers that the launcher reads: sizes of what is reduced, too."""
    found = [*(before.functor.members if before else ()), *after.functor.members]
    known = {member.source: member for member in found}
    for at, dim in enumerate(reversed(kernel.anchored(Convolution).outputs)):
        if not dim.is_static:
            known.setdefault(
                dim, Member(name=f"outputs{at}", type="int64_t", reader="integer", source=dim)
            )
    return tuple(known.values())


def _folds(anchor: Convolution) -> tuple[str, str]:
    """How results are reduced over windows and over channels, as C++ names."""
    reduction = anchor.conv.reduction
    both = (reduction.over_windows, reduction.over_channels) if reduction else (None, None)
    windows, channels = ("NONE" if it is None else it.name for it in both)
    return windows, channels


def _moments(anchor: Convolution) -> str | None:
    """Whether the kernel makes moments beside its results or alone, as a C++ name."""
    reduction = anchor.conv.reduction
    return None if reduction is None or reduction.moments is None else reduction.moments.name


def _program(kernel: Kernel) -> _Program | None:
    """The row program over channels."""
    reduction = kernel.anchored(Convolution).conv.reduction
    if reduction is None or reduction.result is None:
        return None
    if reduction.keeps_channels:
        return _Program(name=_PROGRAMS[reduction.result])
    writer = ExpressionWriter((), (reduction.result,), operand_name)
    value = writer.write(reduction.result).text
    return _Program(
        name=f"{camel_case(kernel.name)}Totals", statements=tuple(writer.statements), value=value
    )


def _windows(anchor: Convolution) -> str:
    """Results of a window, W first, as a C++ list of three."""
    window = anchor.conv.reduction.window if anchor.conv.reduction else ()
    return ", ".join(map(str, (*reversed(window), *[1] * (3 - len(window)))))


def _outputs(anchor: Convolution) -> str:
    """Results along each dimension, W first, likewise."""
    shown = [
        dim.text if dim.is_static else f"outputs{at}"
        for at, dim in enumerate(reversed(anchor.outputs))
    ]
    return ", ".join((*shown, *["1"] * (3 - len(shown))))


def _variants(kernel: Kernel) -> tuple[_Variant, ...]:
    if isinstance(kernel.config, DirectConfig):
        return (_direct(kernel, kernel.config), _any(kernel))
    anchor, config = kernel.anchored(Convolution), kernel.configured(ConvConfig)
    planes = 1 if anchor.rounding is Rounding.SHORT else 2
    general = general_config(sizes_of_kernel(kernel), planes)
    tuned = "The captured sizes"
    found = [_tensor_cores(kernel.name, "Tuned", "", tuned, config)]
    if general != config:
        accurate = ", as accurate as float32" if rounds(kernel) else ""
        why = f"Other sizes{accurate}"
        found.append(_tensor_cores(kernel.name, "General", "_general", why, general))
    return (*found, _any(kernel))


def _any(kernel: Kernel) -> _Variant:
    return _Variant(
        suffix="Any",
        why="Any sizes, on the CUDA cores",
        device="any",
        members=(),
        kernel="_any",
        pointers=(f"{kernel.name}_any_kernel",),
    )


def _direct(kernel: Kernel, config: DirectConfig) -> _Variant:
    conv, sizes = kernel.anchored(Convolution).conv, sizes_of_kernel(kernel)
    taps = [axis.taps for axis in sizes.axes]
    each = zip(
        (*taps, 1, 1),
        (*reversed(conv.stride), 1, 1),
        (*reversed(conv.padding), 0, 0),
        (*reversed(conv.dilation), 1, 1),
        strict=True,
    )
    lists = (", ".join(map(str, numbers)) for numbers in each)
    return _Variant(
        suffix="Direct",
        why="All sizes that it can count",
        device="direct",
        members=(
            *(f"using {name} = ConvTaps<{of}>;" for name, of in zip("WHD", lists, strict=False)),
            f"static constexpr int IN_CHANNELS = {sizes.in_channels}, "
            f"OUT_CHANNELS = {sizes.out_channels};",
            f"static constexpr int CHANNELS = {config.channels};",
        ),
        kernel="",
        pointers=(f"{kernel.name}_kernel",),
    )


def _tensor_cores(name: str, suffix: str, kernel: str, why: str, config: ConvConfig) -> _Variant:
    return _Variant(
        suffix=suffix,
        why=why,
        device="tensor",
        members=(
            f"using Instruction = Wgmma{config.width}F16;",
            f"static constexpr int SPATIAL = {config.spatial}, CHUNK = {config.chunk}, "
            f"PLANES = {config.planes};",
            f"static constexpr int CHANNEL_PARTS = {config.parts}, STAGES = {config.stages}, "
            "CLUSTER = 1;",
            f"static constexpr ConvSchedule SCHEDULE = ConvSchedule::{config.schedule.name};",
            f"static constexpr RowTaps ROW_TAPS = RowTaps::{config.row_taps.name};",
            f"static constexpr int PATCHES = {config.patches}, PATCH_BYTES = {config.patch_bytes};",
            f"static constexpr int JOINED = {config.joined}, FOLD_PHASES = {config.fold_phases}, "
            f"OUTPUTS = {config.outputs};",
            f"static constexpr ConvStore STORE = ConvStore::{config.store.name};",
        ),
        kernel=kernel,
        pointers=(f"{name}{kernel}_planes_kernel", f"{name}{kernel}_kernel"),
        config=config,
    )


def _geometry(conv: Conv) -> tuple[str, ...]:
    """Strides, paddings and dilations, W first, as C++ lists of three."""
    rest = 3 - len(conv.stride)
    return tuple(
        "{" + ", ".join(map(str, (*reversed(values), *[filler] * rest))) + "}"
        for values, filler in ((conv.stride, 1), (conv.padding, 0), (conv.dilation, 1))
    )


def _only_at(kernel: Kernel) -> RoundingSizes | None:
    sizes = kernel.anchored(Convolution).sizes
    return RoundingSizes(captured=sizes) if rounds(kernel) else None


def _arithmetic(kernel: Kernel) -> tuple[str, ...]:
    anchor = kernel.anchored(Convolution)
    where = f": at input {anchor.sizes}, while PyTorch allows it TF32" if rounds(kernel) else ""
    return (f"{anchor.rounding}{where}",)


CONV = Writer(emit=emit, only_at=_only_at, arithmetic=_arithmetic)
