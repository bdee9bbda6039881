"""Matrix products as CUDA text: a functor, and the variants that run it."""

from collections.abc import Iterator
from math import prod

from kernelwright.codegen.arrange import Arranged, Arrangement, product_of
from kernelwright.codegen.expressions import operand_name
from kernelwright.codegen.families.gemm_variants import (
    Layouts,
    factor_of,
    rounds,
    simt_majors,
    simt_members,
    tuned,
)
from kernelwright.codegen.families.writer import RoundingSizes, Writer
from kernelwright.codegen.functor import elementwise_fields, functor
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.kinds import Contract, Reduction
from kernelwright.ir.plan import Kernel
from kernelwright.ir.product_configs import Feed, GemmConfig, Major, TensorCoreConfig
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.schedule.gemm_work import contraction_sizes
from kernelwright.schedule.roles import Roles, roles

_SMALL_TILE = GemmConfig(block_m=32, block_n=64, block_k=16, thread_m=4, thread_n=4, stages=3)
"""For products that would leave multiprocessors idle, and for any strides."""
_FINISHING_TILE = GemmConfig(block_m=64, block_n=128, block_k=16, thread_m=8, thread_n=8, stages=2)
"""With more registers, which finding out what there is to finish takes; and for any strides where
sizes give them, as fast as the CUDA cores are. nvcc takes six times as long for it."""
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
    return {
        "factor": STORED[factor_of(kernel).dtype],
        "tuned": own,
        "small": simt_members(_SMALL_TILE, *simt_majors(kernel)) if _has_small(kernel) else (),
        "general": ()
        if _takes_all(kernel)
        else simt_members(_general_tile(kernel), Major.NONE, Major.NONE),
        "is_plain": _is_plain(kernel),
        "triangle": kernel.triangle,
        "patches": _walk(kernel),
        "rounds": rounds(kernel),
        "kept": _KEPT[kernel.kept],
        "pairs": kernel.pairs,
        "moments": kernel.moments,
    }


def _general_tile(kernel: Kernel) -> GemmConfig:
    """What other sizes may ask for is fast; what only other strides ask for is soon compiled."""
    if not isinstance(kernel.config, TensorCoreConfig):
        return _SMALL_TILE
    rows = (*kernel.inputs[:2], kernel.output)
    has_other_rows = any(isinstance(it, TensorType) and not it.shape[-1].is_static for it in rows)
    return _FINISHING_TILE if tuned(kernel).finished or has_other_rows else _SMALL_TILE


def _walk(kernel: Kernel) -> str | None:
    """`PatchWalk` of a convolution by place: W first."""
    patches = kernel.anchored(Contract).patches
    if patches is None or patches.are_pixels:
        return None
    pairs = (patches.taps, patches.stride, patches.padding, patches.dilation)
    return ", ".join(f"{{{across}, {down}}}" for down, across in pairs)


def _takes_strides(kernel: Kernel) -> bool:
    """Whether the tuned variant runs on the tensor cores whatever the strides, and leaves nothing:
    but for other cards, and products that are small beside the captured one."""
    own = tuned(kernel)
    return own.layouts is Layouts.ANY and not own.finished


def _is_plain(kernel: Kernel) -> bool:
    """Whether what the tuned variant leaves is left to gemm_plain.cuh."""
    is_sm90 = isinstance(kernel.config, TensorCoreConfig)
    is_conv = _has_patches(kernel) or rounds(kernel)
    return is_sm90 and (_takes_strides(kernel) or _has_one_size(kernel) or is_conv)


def _has_patches(kernel: Kernel) -> bool:
    """Whether its rows are patches, which no other variants read."""
    return _walk(kernel) is not None


def _has_small(kernel: Kernel) -> bool:
    """Whether sizes that are too small for the tuned variant have one of their own."""
    if _has_patches(kernel) or rounds(kernel) or kernel.pairs:
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
    majors = simt_majors(kernel) if has_layouts else ()
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
        "ANY_SHORT": factor_of(kernel).dtype.itemsize < 4,
        "ANY_TF32": rounds(kernel),
        "ANY_SIMT_MN": Major.MN in majors,
        "ANY_SIMT_K": Major.K in majors,
        "ANY_PATCHES": _has_patches(kernel),
        "ANY_OTHER_SIZES": not takes_all,
        "ANY_TURNED": not takes_all,
        "ANY_EXTREMES": kernel.kept is not None,
        "ANY_COLUMN_MOMENTS": kernel.moments,
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
    if kernel.moments:
        sources = (*sources, "gemm_moments.cuh")
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
        "results": [*(f"out{number}" for number in numbers), *["moments"] * kernel.moments],
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
        results=(*(product.out,) * kernel.together, *(None,) * kernel.moments),
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
    if sizes is None or not rounds(kernel):
        return ()
    return (f"{Rounding.MEASURED_SIZES}: at input {sizes}, while PyTorch allows it TF32",)


GEMM = Writer(emit=emit, arrange=_arrange, only_at=_only_at, arithmetic=_arithmetic)
