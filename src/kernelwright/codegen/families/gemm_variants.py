"""Variants of a product as text: their files, their config, and the class that launches them."""

from dataclasses import dataclass, replace
from enum import Enum

from kernelwright.codegen.arrange import product_of
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel
from kernelwright.ir.product_configs import (
    Feed,
    FewConfig,
    GemmConfig,
    Major,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import DType, TensorType, ValueType
from kernelwright.machine import CARD_WITH_WGMMA
from kernelwright.schedule.roles import Roles, roles
from kernelwright.schedule.tensor_core_model import is_buffered


class Layouts(Enum):
    """What lets a variant take the sizes that it is for."""

    CAPTURED = "factors that lie as they were captured"
    ANY = "any strides and alignment"


_SPLIT_BEFORE = (Feed.SPLIT, Feed.AHEAD, Feed.PAIRED)
"""What has planes of both factors, however these lie."""


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
    layouts: Layouts = Layouts.CAPTURED
    """Which factors it takes."""

    buffered: bool | None = None
    """Whether whole rows of results have room in shared memory: `Sm90Tile::BUFFERED`; None for
    variants that have no such tile."""
    has_workspace: bool = True


def tuned(kernel: Kernel) -> Tuned:
    """How the kernel's own configuration is written."""
    match kernel.config:
        case GemmConfig() as config:
            return _simt(config, *simt_majors(kernel))
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


def simt_members(config: GemmConfig, lhs: Major, rhs: Major) -> tuple[str, ...]:
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
        members=simt_members(config, lhs, rhs),
        variant="GemmVariant",
        function="gemm_simt",
        parameters="Problem",
        threads="Tile::THREADS",
        blocks="Tile::MIN_BLOCKS",
        why_small="too few tiles to fill the card",
        has_workspace=False,
    )


def _tensor_cores(config: TensorCoreConfig, kernel: Kernel) -> Tuned:
    numbers = "Bf16" if factor_of(kernel).dtype is DType.BF16 else "F16"
    numbers = "Tf32" if rounds(kernel) else numbers
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
            f"static constexpr int RESIDENT = {config.resident}, TAPS = {config.taps}, "
            f"PIXELS = {config.pixels};",
            f"static constexpr bool TRANSPOSED = {str(config.transposed).lower()};",
            _layouts(lhs, rhs),
            f"static constexpr int64_t MIN_PRODUCTS = {config.min_products};",
            *([least_ahead] if config.feed is Feed.AHEAD else []),
            *([_masks(kernel, config)] if config.feed.is_direct else []),
        ),
        variant="Sm90Variant",
        function="gemm_sm90",
        blocks="Tile::RESIDENT" if config.resident > 1 else None,
        why_small="too small for the tensor cores",
        finished=config.feed in (Feed.CONVERT, Feed.INSIDE),
        adds_slices=config.slices > 1 and config.feed not in (Feed.CONVERT, Feed.INSIDE),
        layouts=Layouts.ANY if config.feed in _SPLIT_BEFORE else Layouts.CAPTURED,
    )


def _masks(kernel: Kernel, config: TensorCoreConfig) -> str:
    """Masks of what joins a config's result: by row, by column and by place."""
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


def simt_majors(kernel: Kernel) -> tuple[Major, Major]:
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


def factor_of(kernel: Kernel) -> TensorType:
    """The type of a factor of the kernel's product; both have the same elements."""
    factor = kernel.inputs[0]
    assert isinstance(factor, TensorType)
    return factor


def rounds(kernel: Kernel) -> bool:
    """Whether its first variant rounds float32 to TF32."""
    config = kernel.config
    is_direct = isinstance(config, TensorCoreConfig) and config.feed.is_direct
    return is_direct and factor_of(kernel).dtype is DType.F32
