"""Configurations of the tensor-core product that are legal for a product."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import ceil

from kernelwright.ir.product_configs import Feed, Major, TensorCoreConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.product_shape import ProductShape
from kernelwright.schedule.tensor_core_model import (
    ROW_BYTES,
    blocks_at_once,
    elements_ahead,
    is_buffered,
    tensor_core_blocks,
    warpgroup_rates,
)

FEEDS = {
    DType.F32: (Feed.SPLIT, Feed.AHEAD, Feed.CONVERT, Feed.INSIDE),
    DType.F16: (Feed.DIRECT, Feed.TURNS),
    DType.BF16: (Feed.DIRECT, Feed.TURNS),
}
PAIRED_FEEDS = (Feed.PAIRED,)
"""Where the left factor comes in pairs."""
COLUMNS = {
    Feed.SPLIT: (128, 64),
    Feed.AHEAD: (128,),
    Feed.PAIRED: (128, 64),
    Feed.CONVERT: (128, 64),
    Feed.INSIDE: (128,),
    Feed.DIRECT: (256, 192, 128, 64),
    Feed.TURNS: (256, 192, 128, 64),
    Feed.BAND: (128, 64),
}
"""Columns of a tile: three accumulators of 256 columns do not fit the registers."""
FEW_COLUMNS = {64: (2,), 32: (2, 1), 16: (2, 3, 1)}
"""Blocks of a multiprocessor at one time, for more tiles of TF32, as the registers of their sums
allow: the best first where memory is the limit."""
CLUSTERS = {
    Feed.SPLIT: (2, 1),
    Feed.AHEAD: (2, 1),
    Feed.PAIRED: (2, 1),
    Feed.CONVERT: (2, 1),
    Feed.INSIDE: (4,),
    Feed.DIRECT: (2, 1),
    Feed.TURNS: (2, 1),
    Feed.BAND: (1,),
}
_PIXELS, _MOST_PIXELS = 64, 256
"""Pixels of a stage are so many, or times as many: those of one copy at most."""
_BOX_COLUMNS = 64
"""Elements of a row of 128 bytes."""
OUTSIDE_STAGES = 22 * 1024
"""Bytes of shared memory: a buffer of rows for each warp that multiplies, alignment, barriers."""
OF_EACH_BLOCK = 1024
"""Bytes of shared memory that a block takes besides its own."""
RAW_BOXES = 34 * 1024
"""Instead, where both factors are split inside: what becomes the next stage, and barriers."""


def tensor_core_configs(shape: ProductShape, machine: Machine) -> Iterator[TensorCoreConfig]:
    """Those worth compiling; none on cards without the instructions."""
    if machine.warpgroups is None:
        return
    feeds = PAIRED_FEEDS if shape.pairs else FEEDS.get(shape.dtype, ())
    if shape.rounds and shape.dtype is DType.F32:
        direct = (Feed.DIRECT, Feed.TURNS, *([Feed.BAND] if shape.reach else []))
        rounding = list(_fed(direct, shape, machine))
        if rounding:  # One product in place of three, and nothing is split before.
            yield from rounding
            return
    yield from _fed(feeds, shape, machine)


def _fed(
    feeds: Iterable[Feed], shape: ProductShape, machine: Machine
) -> Iterator[TensorCoreConfig]:
    """Those whose factors come in one of these ways."""
    least = min(warpgroup_rates(machine).least_products, shape.products)
    for feed in feeds:
        for transposed, (columns, cluster, resident) in product(
            (False, True), tuple(_tiles(feed, shape))
        ):
            config = TensorCoreConfig(
                block_n=columns,
                feed=feed,
                stages=0,
                cluster=cluster,
                resident=resident,
                transposed=transposed,
                taps=shape.taps if feed is Feed.BAND else 1,
                pixels=_pixels(shape) if feed is Feed.BAND else 0,
                block_k=ROW_BYTES // shape.dtype.itemsize if feed.is_direct else 64,
                min_products=least,
            )
            config = replace(config, stages=_stages(config, machine))
            if config.stages < 2:
                continue
            if feed is Feed.AHEAD:
                if elements_ahead(shape, config, machine) > 0:
                    yield config
            elif _can_feed(config, shape) and _is_worth_turning(config, shape):
                yield config
                yield from _sliced(config, shape, machine)
                yield from _buffered(config, shape, machine)


def _pixels(shape: ProductShape) -> int:
    """Pixels of a tile whose taps share them, and what the last ones reach."""
    rows = 128 + shape.reach
    return ceil(rows / _PIXELS) * _PIXELS


def _tiles(feed: Feed, shape: ProductShape) -> Iterator[tuple[int, int, int]]:
    """Columns of a tile, blocks of a cluster, blocks of a multiprocessor."""
    if feed is Feed.BAND:
        yield from ((columns, 1, 1) for columns in (32, 16) if columns < 2 * shape.n)
    if feed is Feed.DIRECT and shape.dtype is DType.F32:
        for columns, several in FEW_COLUMNS.items():
            # What joins 64 columns has no registers beside their sums.
            fits = columns < 2 * shape.n and not (columns == 64 and shape.extras)
            yield from ((columns, 1, resident) for resident in several if fits)
    for columns, cluster in product(COLUMNS[feed], CLUSTERS[feed]):
        yield columns, cluster, 1


def _can_feed(config: TensorCoreConfig, shape: ProductShape) -> bool:
    """What is split before may lie as it will; all else is read in whole aligned rows."""
    lhs, rhs = shape.sides(config)
    read = {
        Feed.SPLIT: (),
        Feed.PAIRED: (),
        Feed.CONVERT: (lhs,),
        Feed.INSIDE: (lhs, rhs),
        Feed.DIRECT: (lhs, rhs),
        Feed.TURNS: (lhs, rhs),
        Feed.BAND: (lhs, rhs),
    }[config.feed]
    if config.feed is Feed.BAND and (config.pixels > _MOST_PIXELS or config.transposed):
        return False
    # Its launcher takes no triangles, and the guard counts each element in one tile only.
    is_plain = shape.batches == 1 and shape.triangle is None and not config.transposed
    if config.feed is Feed.INSIDE and not is_plain:
        return False
    if config.feed is Feed.PAIRED and (config.transposed or lhs.major is not Major.K):
        return False
    # Boxes along N have 64 columns, and each block of a cluster fetches half of a tile's.
    has_halves = config.cluster == 2 and config.feed.is_direct
    # Halves of 96 columns are slower than no clusters, or than other tiles (measured/gemm.md).
    is_slow = config.feed is Feed.TURNS and shape.is_short
    if has_halves and config.block_n % (2 * _BOX_COLUMNS) and (rhs.major is Major.MN or is_slow):
        return False
    if config.feed.is_direct and shape.dtype is DType.F32 and {lhs.major, rhs.major} != {Major.K}:
        return False  # there are no products of 32 bits that lie otherwise
    return all(factor.major is not Major.NONE and factor.is_aligned for factor in read)


def _is_worth_turning(config: TensorCoreConfig, shape: ProductShape) -> bool:
    """Changing sides costs the stores; it is for factors to convert, and for few rows."""
    return not config.transposed or config.feed is Feed.CONVERT or shape.m <= 64 < shape.n


def _sliced(
    config: TensorCoreConfig, shape: ProductShape, machine: Machine
) -> Iterator[TensorCoreConfig]:
    """The config with slices that fill the card once, and a kernel after it that adds them."""
    blocks = tensor_core_blocks(shape, config)
    slice_k = warpgroup_rates(machine).slice_k
    slices = min(blocks_at_once(config, machine) // max(1, blocks), shape.k // slice_k)
    if slices > 1 and (not config.feed.is_direct or _is_deep_convolution(config, shape)):
        yield replace(config, slices=slices)


def _is_deep_convolution(config: TensorCoreConfig, shape: ProductShape) -> bool:
    """Whether warpgroups that share a tile multiply a convolution by place, where what follows does
    not ask for whole sums in the product itself."""
    is_convolution = shape.taps > 1 or shape.rounds
    return config.feed is Feed.DIRECT and is_convolution and shape.kept is None


def _buffered(
    config: TensorCoreConfig, shape: ProductShape, machine: Machine
) -> Iterator[TensorCoreConfig]:
    """The config with a stage less, whose room is for results: clusters need it, and so does a long
    K."""
    fewer = replace(config, stages=config.stages - 1)
    buffered_k = warpgroup_rates(machine).buffered_k
    short = shape.k <= buffered_k and config.cluster == 1 and not config.transposed
    if short and not is_buffered(config, machine) and is_buffered(fewer, machine):
        yield fewer


def _stages(config: TensorCoreConfig, machine: Machine) -> int:
    """As many as fit the shared memory beside what is on its way to the result."""
    planes = 1 if config.feed.is_direct else 2
    rows = config.pixels or config.block_m
    stage = planes * (rows + config.taps * config.block_n) * ROW_BYTES
    outside = RAW_BOXES if config.feed is Feed.INSIDE else OUTSIDE_STAGES
    # Of several blocks each costs some besides.
    each = (machine.shared_memory_per_block + OF_EACH_BLOCK) // config.resident - OF_EACH_BLOCK
    return (each - outside) // stage
