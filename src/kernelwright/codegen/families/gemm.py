"""Matrix products as CUDA text: a functor, and the variants that run it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from kernelwright.codegen.arrange import Arranged, Arrangement, product_of
from kernelwright.codegen.expressions import operand_name
from kernelwright.codegen.families.writer import RoundingSizes, Writer
from kernelwright.codegen.functor import elementwise_fields, functor
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.configs import (
    Feed,
    FewConfig,
    GemmConfig,
    Major,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.kinds import Contract, Reduction
from kernelwright.ir.plan import Kernel
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import DType, TensorType, ValueType
from kernelwright.machine import CARD_WITH_WGMMA
from kernelwright.schedule.gemm_model import is_buffered
from kernelwright.schedule.gemm_work import contraction_sizes
from kernelwright.schedule.roles import Roles, roles


class _Layouts(Enum):
    """What lets a variant take the sizes that it is for."""

    CAPTURED = "factors that lie as they were captured"
    ANY = "any strides and alignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The variant that the config describes, and what the others are beside it."""

    sources: tuple[str, ...]
    """Files of kernels/ that it needs."""
    members: tuple[str, ...]
    """Declarations in its config."""
    variant: str
    """Class template that launches it, of a config and the problem."""
    function: str
    """Device function that it runs."""
    parameters: str = "TunedVariant::Parameters"
    """Type that its kernel takes, without the functor's name in front."""
    threads: str = "THREADS"
    """Member of the variant: threads of a block."""
    blocks: str | None = "MIN_BLOCKS"
    """Member of the variant: blocks that a multiprocessor holds; None for one."""
    why_small: str
    """What is left to the small variant."""
    finished: bool = False
    """The general variant's kernel runs after it, too: to add slices of K, and to compute what a
    guard says at the end."""
    adds_slices: bool = False
    """A kernel after it adds slices of K, and does nothing else."""
    layouts: _Layouts = _Layouts.CAPTURED
    """Which factors it takes."""

    buffered: bool | None = None
    """Whether whole rows of results have room in shared memory: `Sm90Tile::BUFFERED`; None for
    variants that have no such tile."""
    has_workspace: bool = True


_SMALL_TILE = GemmConfig(block_m=32, block_n=64, block_k=16, thread_m=4, thread_n=4, stages=3)
"""For products that would leave multiprocessors idle, and for any strides."""
_FINISHING_TILE = GemmConfig(block_m=64, block_n=128, block_k=16, thread_m=8, thread_n=8, stages=2)
"""With more registers, which finding out what there is to finish takes."""
_MOST_ALONG = 1 << 30
"""Elements along a dimension: coordinates of boxes are 32-bit."""
_TILE_ROWS = 128
"""Rows of a tile on the tensor cores: `Sm90Tile::BLOCK_M`."""
_KEPT = {
    None: None,
    Reduction.MAXIMUM: "LargestResult",
    Reduction.MINIMUM: "SmallestResult",
}
"""What the text keeps of a row."""
_STEP_K = 64
"""K of one of its steps: `Sm90Tile::BLOCK_K`."""
_MOST_STEPS_IN_TURN = 4
"""Steps of a unit, as many as `Sm90Tile::FEW_STEPS` at most."""
_MOST_TILES = 1 << 24
"""Tiles of 64 elements along each dimension: many more are still numbered in 32 bits."""


def product_fields(kernel: Kernel) -> dict[str, object]:
    """What the template of a product needs besides the fields of every kernel."""
    own = tuned(kernel)
    is_sm90 = isinstance(kernel.config, TensorCoreConfig)
    general = _FINISHING_TILE if is_sm90 else _SMALL_TILE
    return {
        "factor": STORED[_factor(kernel).dtype],
        "tuned": own,
        "small": _simt_members(_SMALL_TILE, *_simt_majors(kernel)) if _has_small(kernel) else (),
        "general": () if _takes_all(kernel) else _simt_members(general, Major.NONE, Major.NONE),
        "is_plain": _is_plain(kernel),
        "triangle": kernel.triangle,
        "patches": _walk(kernel),
        "rounds": _rounds(kernel),
        "kept": _KEPT[kernel.kept],
    }


def _walk(kernel: Kernel) -> str | None:
    """`PatchWalk` of a convolution by place: W first."""
    patches = kernel.anchored(Contract).patches
    if patches is None or patches.are_pixels:
        return None
    pairs = (patches.taps, patches.stride, patches.padding, patches.dilation)
    return ", ".join(f"{{{across}, {down}}}" for down, across in pairs)


def _rounds(kernel: Kernel) -> bool:
    """Whether its first variant rounds float32 to TF32."""
    config = kernel.config
    is_direct = isinstance(config, TensorCoreConfig) and config.feed.is_direct
    return is_direct and _factor(kernel).dtype is DType.F32


def _takes_strides(kernel: Kernel) -> bool:
    """Whether the tuned variant runs on the tensor cores whatever the strides, and leaves nothing:
    but for other cards, and products that are small beside the captured one."""
    own = tuned(kernel)
    return own.layouts is _Layouts.ANY and not own.finished


def _is_plain(kernel: Kernel) -> bool:
    """Whether what the tuned variant leaves is left to gemm_plain.cuh."""
    is_sm90 = isinstance(kernel.config, TensorCoreConfig)
    is_conv = _has_patches(kernel) or _rounds(kernel)
    return is_sm90 and (_takes_strides(kernel) or _has_one_size(kernel) or is_conv)


def _has_patches(kernel: Kernel) -> bool:
    """Whether its rows are patches, which no other variants read."""
    return _walk(kernel) is not None


def _has_small(kernel: Kernel) -> bool:
    """Whether sizes that are too small for the tuned variant have one of their own."""
    if _has_patches(kernel) or _rounds(kernel):
        return False
    if _takes_strides(kernel):
        return kernel.serves_several_sizes
    return not _has_one_size(kernel)


def _has_one_size(kernel: Kernel) -> bool:
    """Whether there are only the captured sizes, for which the tuned variant is."""
    is_static = all(dim.is_static for kind in _tensors(kernel) for dim in kind.shape)
    return is_static and not kernel.serves_several_sizes


def _takes_all(kernel: Kernel) -> bool:
    """Whether the tuned variant takes every call on the card that it is for: `admits` is true."""
    config = kernel.config
    if not isinstance(config, TensorCoreConfig) or not _takes_strides(kernel):
        return False
    if not _has_one_size(kernel) or kernel.kept is not None:
        return False
    extents = _extents(kernel)
    products = prod(extents.values())
    out = kernel.anchored(Contract).out
    least_tiles = prod(extents[letter] // 64 + 1 for letter in out)
    are_small = max(extents.values()) < _MOST_ALONG and least_tiles < _MOST_TILES
    return 0 < products >= config.min_products and are_small


def _extents(kernel: Kernel) -> dict[str, int]:
    """The captured size of each dimension of the product, by its letter."""
    return contraction_sizes(kernel.anchored(Contract), kernel.inputs, kernel.output)


def _fills_tiles(kernel: Kernel) -> bool:
    """Whether a new result has whole tiles alone: clusters of them, and aligned rows."""
    config, out = kernel.config, product_of(kernel.anchored(Contract)).out
    if not isinstance(config, TensorCoreConfig) or not _takes_all(kernel):
        return False
    # Operands that join, a turned result and whole buffered rows have conditions of their own.
    if len([*_tensors(kernel)]) != 3 or config.transposed or tuned(kernel).buffered:
        return False
    *_, rows, columns = (dim.hint for dim in kernel.output.shape)
    fills = rows % (_TILE_ROWS * config.cluster) == 0 and columns % config.block_n == 0
    return fills and out.text("") == ""


def _has_many_steps(kernel: Kernel) -> bool:
    """Whether units have more steps of K than warpgroups take turns for."""
    found = roles(kernel.anchored(Contract))
    assert isinstance(found, Roles)
    return _extents(kernel)[found.k] > _MOST_STEPS_IN_TURN * _STEP_K


def _tensors(kernel: Kernel) -> Iterator[TensorType]:
    kinds = (*kernel.inputs, *kernel.outputs)
    return (kind for kind in kinds if isinstance(kind, TensorType))


def tuned(kernel: Kernel) -> Tuned:
    """How the kernel's own configuration is written."""
    match kernel.config:
        case GemmConfig() as config:
            return _simt(config, *_simt_majors(kernel))
        case TensorCoreConfig() as config:
            found = _tensor_cores(config, kernel)
            return replace(found, buffered=_stores_whole_rows(config, kernel))
        case ThinConfig() as config:
            return _thin(config)
        case FewConfig() as config:
            return _few(config)
    raise AssertionError(f"{kernel.name} is no product")


def _stores_whole_rows(config: TensorCoreConfig, kernel: Kernel) -> bool:
    """`Sm90Tile::BUFFERED`, which the text asserts: results of four bytes, or slices' sums."""
    has_words = config.slices > 1 or kernel.output.dtype.itemsize == 4
    return has_words and is_buffered(config, CARD_WITH_WGMMA)


def _simt_members(config: GemmConfig, lhs: Major, rhs: Major) -> tuple[str, ...]:
    """A config of gemm_simt.cuh."""
    return (
        f"static constexpr int BLOCK_M = {config.block_m}, BLOCK_N = {config.block_n}, "
        f"BLOCK_K = {config.block_k};",
        f"static constexpr int THREAD_M = {config.thread_m}, THREAD_N = {config.thread_n};",
        f"static constexpr int STAGES = {config.stages};",
        f"static constexpr int PROMOTE_K = {config.promote_k};",
        _layouts(lhs, rhs),
        f"static constexpr int64_t MIN_TILES = {config.min_tiles};",
    )


def _simt(config: GemmConfig, lhs: Major, rhs: Major) -> Tuned:
    return Tuned(
        sources=("gemm_simt.cuh",),
        members=_simt_members(config, lhs, rhs),
        variant="GemmVariant",
        function="gemm_simt",
        parameters="Problem",
        threads="Tile::THREADS",
        blocks="Tile::MIN_BLOCKS",
        why_small="too few tiles to fill the card",
        has_workspace=False,
    )


def _tensor_cores(config: TensorCoreConfig, kernel: Kernel) -> Tuned:
    numbers = "Bf16" if _factor(kernel).dtype is DType.BF16 else "F16"
    numbers = "Tf32" if _rounds(kernel) else numbers
    # What splits factors writes them in the order that is asked for.
    lhs, rhs = (Major.K if major is Major.NONE else major for major in _majors(kernel))
    if config.transposed:
        lhs, rhs = rhs, lhs
    least_ahead = f"static constexpr int64_t LEAST_AHEAD = {config.least_ahead};"
    return Tuned(
        sources=(f"wgmma_{numbers.lower()}.cuh", "gemm_sm90_launch.cuh"),
        members=(
            f"using Instruction = Wgmma{config.block_n}{numbers};",
            f"static constexpr Feed FEED = Feed::{config.feed.name};",
            f"static constexpr int STAGES = {config.stages}, CLUSTER = {config.cluster}, "
            f"SLICES = {config.slices};",
            f"static constexpr bool TRANSPOSED = {str(config.transposed).lower()};",
            _layouts(lhs, rhs),
            f"static constexpr int64_t MIN_PRODUCTS = {config.min_products};",
            *([least_ahead] if config.feed is Feed.AHEAD else []),
            *([_masks(kernel, config)] if config.feed in (Feed.DIRECT, Feed.TURNS) else []),
        ),
        variant="Sm90Variant",
        function="gemm_sm90",
        blocks=None,
        why_small="too small for the tensor cores",
        finished=config.feed in (Feed.CONVERT, Feed.INSIDE),
        adds_slices=config.slices > 1 and config.feed is Feed.SPLIT,
        layouts=_Layouts.ANY if config.feed in (Feed.SPLIT, Feed.AHEAD) else _Layouts.CAPTURED,
    )


def _masks(kernel: Kernel, config: TensorCoreConfig) -> str:
    """The config's masks of what joins its result: by row, by column and by place."""
    product = product_of(kernel.anchored(Contract))
    joining = [kind for kind in kernel.inputs[2:] if isinstance(kind, TensorType)]
    by_row = by_column = by_place = 0
    for at, kind in enumerate(joining):
        sizes = (ONE, ONE, *product.joined(kind.rank).sizes(kind.shape))
        *batches, rows, columns = (*sizes[:-2], *sizes[-2:][:: -1 if config.transposed else 1])
        # Of several batches each may have its own for a column.
        is_shared = {*batches, rows} == {ONE}
        by_row |= (columns == ONE and rows != ONE) << at
        by_column |= (columns != ONE and is_shared) << at
        by_place |= (columns != ONE and not is_shared) << at
    return f"using Masks = JoiningMasks<{by_row:#x}, {by_column:#x}, {by_place:#x}>;"


def _thin(config: ThinConfig) -> Tuned:
    return Tuned(
        sources=("gemm_thin.cuh", "gemm_simt.cuh"),
        members=(
            f"static constexpr int ROWS = {config.rows}, COLUMNS = {config.columns}, "
            f"STEP = {config.step};",
            f"static constexpr int ROW_TILES = {config.row_tiles};",
            f"static constexpr int THREADS = {config.threads}, RESIDENT = {config.resident};",
            f"static constexpr int MULTIPROCESSORS = {config.multiprocessors};",
            f"static constexpr Major WIDE = Major::{config.wide};",
        ),
        variant="ThinVariant",
        function="gemm_thin",
        why_small="not as thin",
    )


def _few(config: FewConfig) -> Tuned:
    return Tuned(
        sources=("gemm_few.cuh", "gemm_simt.cuh"),
        members=(
            f"static constexpr int GROUPS = {config.groups}, LOADS = {config.loads}, "
            f"WARPS = {config.warps};",
        ),
        variant="FewProductVariant",
        function="gemm_few",
        parameters="Problem",
        blocks=None,
        why_small="of more rows",
        has_workspace=False,
    )


def _layouts(lhs: Major, rhs: Major) -> str:
    return f"static constexpr Major LHS = Major::{lhs}, RHS = Major::{rhs};"


def _majors(kernel: Kernel) -> tuple[Major, Major]:
    """How the factors lie if their tensors are contiguous."""
    found = roles(kernel.anchored(Contract))
    assert isinstance(found, Roles)
    return found.left_major, found.right_major


def _simt_majors(kernel: Kernel) -> tuple[Major, Major]:
    """Layouts that the CUDA cores rely on. They move rows along M or N in whole 16 bytes: where a
    known size has others, nothing is relied on."""
    swapped = product_of(kernel.anchored(Contract)).swapped
    left, right = reversed(kernel.inputs[:2]) if swapped else kernel.inputs[:2]

    def moved(major: Major, factor: ValueType) -> Major:
        assert isinstance(factor, TensorType)
        last = factor.shape[-1]
        is_apart = last.is_static and last.hint * factor.dtype.itemsize % 16 != 0
        return Major.NONE if major is Major.MN and is_apart else major

    of_left, of_right = _majors(kernel)
    return moved(of_left, left), moved(of_right, right)


def _factor(kernel: Kernel) -> TensorType:
    """The type of a factor of the kernel's product; both have the same elements."""
    factor = kernel.inputs[0]
    assert isinstance(factor, TensorType)
    return factor


def _may_repeat(kind: ValueType) -> bool:
    """Whether an operand that joins the result may have one value for a whole row of it."""
    if not isinstance(kind, TensorType) or kind.rank < 2:
        return False
    return any(dim.is_static and dim.hint == 1 for dim in kind.shape[-2:])


def _absent(kernel: Kernel) -> frozenset[str]:
    """Facts of gemm_facts.cuh that are false of the kernel."""
    count, kernel = kernel.together, kernel.one_product
    config, out = kernel.config, product_of(kernel.anchored(Contract)).out
    sm90 = config if isinstance(config, TensorCoreConfig) else None
    splits_inside = sm90 is not None and sm90.feed is Feed.INSIDE
    has_layouts = isinstance(config, GemmConfig) or _has_small(kernel)
    majors = _simt_majors(kernel) if has_layouts else ()
    takes_all = _takes_all(kernel)
    present = {
        "ANY_BATCHES": count > 1 or len(out.permute) + len(out.unsqueeze) > 2,
        "ANY_TOGETHER": count > 1,
        "ANY_EXTRAS": sum(isinstance(kind, TensorType) for kind in kernel.inputs) > 2,
        "ANY_REPEATED": any(_may_repeat(kind) for kind in kernel.inputs[2:]),
        "ANY_LOCATED": functor(kernel, 2).is_located,
        # Without that test, ptxas spills 8 bytes of the kernel that splits inside.
        "ANY_TRIANGLES": kernel.triangle is not None or splits_inside,
        "ANY_PERMUTED": sm90 is not None and sm90.feed is Feed.CONVERT,
        "ANY_SLICES": sm90 is not None and sm90.slices > 1,
        "ANY_SHORT": _factor(kernel).dtype.itemsize < 4,
        "ANY_TF32": _rounds(kernel),
        "ANY_SIMT_MN": Major.MN in majors,
        "ANY_SIMT_K": Major.K in majors,
        "ANY_PATCHES": _has_patches(kernel),
        "ANY_OTHER_SIZES": not takes_all,
        "ANY_TURNED": not takes_all,
        "ANY_EXTREMES": kernel.kept is not None,
        "ANY_FEW_STEPS": not (takes_all and _has_many_steps(kernel)),
    }
    return frozenset(name for name, is_present in present.items() if not is_present)


def emit(kernel: Kernel) -> KernelText:
    """The text of products and their epilogue."""
    one, own = kernel.one_product, tuned(kernel.one_product)
    fields = {**product_fields(one), **_fields_together(kernel)}
    section = TEMPLATES.get_template("gemm.cu.jinja").render(**fields)
    launch = "gemm_launch.cuh" if kernel.kept is None else "gemm_extreme_launch.cuh"
    sources = (*own.sources, launch)
    if kernel.together > 1:
        sources = (*sources, "gemm_together.cuh")
    asserted = {} if own.buffered is None else {"BUFFERED": own.buffered}
    return KernelText(
        section=section,
        sources=sources,
        has_workspace=own.has_workspace,
        asserted=asserted,
        absent=_absent(kernel),
        absent_if_new=frozenset({"ANY_EDGES"} if _fills_tiles(one) else ()),
    )


def _fields_together(kernel: Kernel) -> dict[str, object]:
    """Fields of the template that all products of a launch have a share in."""
    one = elementwise_fields(kernel.one_product, 2)
    item = functor(kernel.one_product, 2)
    numbers = [f"_{at}" if at else "" for at in range(kernel.together)]
    left, *others = ["lhs", "rhs", *_joining(kernel.one_product)]
    names = [[f"{name}{number}" for name in others] for number in numbers]
    every = [left, *(name for own in names for name in own)]
    return {
        **one,
        **heading(kernel),
        "arguments": read_inputs(kernel, every, item.members),
        "results": [f"out{number}" for number in numbers],
        "products": [
            ", ".join((f"out{number}", left, *own))
            for number, own in zip(numbers, names, strict=True)
        ],
    }


def _joining(kernel: Kernel) -> list[str]:
    """Names of the tensors that join the result."""
    kinds = enumerate(kernel.inputs)
    return [operand_name(at, 2) for at, it in kinds if at > 1 and isinstance(it, TensorType)]


def _arrange(kernel: Kernel) -> Arranged:
    """The operands as matrices of rows and columns, whatever the contraction calls them."""
    product = product_of(kernel.anchored(Contract))
    if product.swapped:
        left, *others = (1, 0, *range(2, len(kernel.inputs)))
    else:
        left, *others = range(len(kernel.inputs))
    own = len(others) // kernel.together

    def seen(number: int, at: int) -> tuple[int, Arrangement]:
        kind = kernel.inputs[at]
        rank = kind.rank if isinstance(kind, TensorType) else 0
        return at, product.right if number % own == 0 else product.joined(rank)

    return Arranged(
        results=(product.out,) * kernel.together,
        inputs=((left, product.left), *(seen(*it) for it in enumerate(others))),
    )


def _only_at(kernel: Kernel) -> RoundingSizes | None:
    """Whatever its configuration: kernels of several are timed with the same words."""
    images, patches = kernel.inputs[0], kernel.anchored(Contract).patches
    assert isinstance(images, TensorType)
    if patches is None or patches.rounds_from is None:
        return None
    captured = tuple(dim.hint for dim in images.shape)
    return RoundingSizes(captured=captured, elements=patches.rounds_from)


def _arithmetic(kernel: Kernel) -> tuple[str, ...]:
    sizes = _only_at(kernel)
    if sizes is None or not _rounds(kernel):
        return ()
    return (f"{Rounding.MEASURED_SIZES}: at input {sizes}, while PyTorch allows it TF32",)


GEMM = Writer(emit=emit, arrange=_arrange, only_at=_only_at, arithmetic=_arithmetic)
