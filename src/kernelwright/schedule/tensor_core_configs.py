"""Configurations of the tensor-core product that are legal for a product."""

from collections.abc import Iterator
from itertools import product

from kernelwright.ir.plan import Feed, Major, TensorCoreConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.gemm_model import ProductShape

FEEDS = {
    DType.F32: (Feed.SPLIT, Feed.CONVERT),
    DType.F16: (Feed.DIRECT,),
    DType.BF16: (Feed.DIRECT,),
}
COLUMNS = {Feed.SPLIT: (128, 64), Feed.CONVERT: (128, 64), Feed.DIRECT: (256, 128, 64)}
"""Of a tile: three sums of 256 columns do not fit the registers."""
CLUSTERS = {Feed.SPLIT: (2, 1), Feed.CONVERT: (1,), Feed.DIRECT: (2, 1)}
LEAST_K = 256
"""Of a slice: less is not worth another sum."""
MIN_PRODUCTS = 1 << 24
"""Multiplications for which the tensor cores are worth their launches; the captured product, where
it has fewer and was given to them all the same."""


def tensor_core_configs(shape: ProductShape, machine: Machine) -> Iterator[TensorCoreConfig]:
    """Those worth compiling; none on cards without the instructions."""
    feeds = FEEDS.get(shape.dtype, ()) if "fp16x3" in machine.flops else ()
    for feed in feeds:
        if not _can_feed(feed, shape):
            continue
        for columns, cluster in product(COLUMNS[feed], CLUSTERS[feed]):
            for slices in _slices(shape, columns, cluster, machine):
                yield TensorCoreConfig(
                    block_n=columns,
                    feed=feed,
                    stages=_stages(feed, columns, machine),
                    cluster=cluster,
                    slices=slices,
                    min_products=min(MIN_PRODUCTS, shape.products),
                )


def _can_feed(feed: Feed, shape: ProductShape) -> bool:
    """A pass before takes factors as they lie; the product itself reads whole aligned rows."""
    contiguous = Major.NONE not in (shape.lhs, shape.rhs)
    return feed is Feed.SPLIT or (contiguous and shape.aligned)


def _slices(shape: ProductShape, columns: int, cluster: int, machine: Machine) -> tuple[int, ...]:
    """No slices, and as many as fill the card once."""
    tiles = shape.tiles(TensorCoreConfig.BLOCK_M * cluster, columns) * cluster
    filling = min(machine.sm_count // max(1, tiles), shape.k // LEAST_K)
    return (1, filling) if filling > 1 else (1,)


def _stages(feed: Feed, columns: int, machine: Machine) -> int:
    """As many as fit the shared memory, with 2 KB for alignment and barriers."""
    planes = 1 if feed is Feed.DIRECT else 2
    rows = TensorCoreConfig.BLOCK_M + columns
    # Converting reads three boxes of 32 fp32 numbers a row ahead.
    boxes = 3 * rows * 128 if feed is Feed.CONVERT else 0
    stage = planes * rows * TensorCoreConfig.BLOCK_K * 2
    return (machine.shared_memory_per_block - 2048 - boxes) // stage
