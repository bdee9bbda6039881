"""How long a matrix product takes in each configuration, and in PyTorch's library.

The constants are measured on an H200 (docs/measured/gemm.md); rates come from the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from kernelwright.ir.configs import (
    Feed,
    GemmConfig,
    Major,
    ProductConfig,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.graph import Contract
from kernelwright.ir.plan import Side, Triangle
from kernelwright.ir.types import DType, TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.roles import Roles, roles

CLOCK = 1.53e9
"""Hertz, of multiprocessors whose tensor cores are busy: power, not the rated clock, decides."""
STEP_CYCLES: dict[tuple[int, int], float] = {
    (3, 64): 1000,
    (3, 128): 1550,
    (1, 64): 360,
    (1, 128): 560,
    (1, 256): 1060,
}
"""Of a step of 64 along K, for a tile of 128 rows: by 16-bit products per product and columns."""
TILE_CYCLES = 3900
"""Of the end of a 128 x 128 tile whose results its own warps store."""
BUFFERED_TILE_CYCLES = 1900
"""The same where they leave it to asynchronous copies."""
SHALLOW = 1.055
"""Times what a step takes with two stages."""
UNSHARED = 1.02
"""Times what a step takes when blocks do not share their reads in clusters."""
TOGETHER_CYCLES = 1200
"""Of a tile besides, when the blocks of a cluster wait for each other."""
CONVERTING = 1.5
"""Times what a step takes when those who multiply split a factor, too."""
INSIDE_STEP_CYCLES = 3200
"""Of a step where other warps of the block split both factors meanwhile."""
FOUR_AT_ONCE = 10 / 11
"""Share of the multiprocessors that clusters of four blocks find."""
TURNED = 1.5
"""Times what a tile takes besides when its rows are columns of the result."""
SHARED_BYTES_OF_BARRIERS = 2 * 1024
"""Of shared memory: barriers, and what alignment costs."""
TENSOR_CORE_BANDWIDTH = 0.9
"""Share of the bandwidth at which factors are read."""
STORE_BANDWIDTH = 0.62
"""Share of the bandwidth for writing at which a result leaves that takes longer to store."""
BUFFERED_STORE_BANDWIDTH = 0.7
"""The same by asynchronous copies."""
NARROW = 1.03
"""Times what storing takes from tiles of 64 columns."""
SPLIT_BANDWIDTH = 3.7e12
"""Bytes a second of the pass that splits fp32 factors; it reads 4 and writes 4 per element."""
AHEAD_OF_STEP = 400
"""Elements that the idle warps of a block split in a step of 64 along K (gemm_sm90_cut.cuh)."""
THIN_BANDWIDTH = 0.97
"""Share of the bandwidth that a product with few rows reaches."""
THIN_SHARE = 0.6
"""Of the CUDA cores' rate that it reaches with so many rows that memory no longer limits it."""
LAUNCH_SECONDS = 3e-6
"""Of a product of ours, on top of what its tiles take."""
NEXT_LAUNCH_SECONDS = 2e-6
"""Of each kernel that comes before or after it."""
LIBRARY_SECONDS = 5e-6
"""Of a product of the library's, on top of what its tiles take."""
LIBRARY_TILE_SECONDS = {DType.F32: 2.5e-6, DType.F64: 2.5e-6, DType.F16: 1e-6, DType.BF16: 1e-6}
"""Of a tile of 128 x 128 on a multiprocessor, on top of its multiplications."""
LIBRARY_BANDWIDTH = 0.93
"""Share of the bandwidth that it reaches with products that memory limits."""
LIBRARY_SHARE = {DType.F32: 0.77, DType.F64: 0.9, DType.F16: 0.9, DType.BF16: 0.9}
"""Of the arithmetic's rate that the library reaches with large products."""
LIBRARY_UNIT = {
    DType.F32: "fp32_simt",
    DType.F64: "fp64_simt",
    DType.F16: "fp16",
    DType.BF16: "bf16",
}
CONVOLUTION_SHARE = 0.5
"""Of the rate of TF32 that convolutions of fp32 reach."""
CONVOLUTION_TILE_SECONDS = 1e-6
"""As `LIBRARY_TILE_SECONDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One side of a product."""

    elements: int
    """Each counted once, however often it is repeated."""
    major: Major
    is_aligned: bool
    """Its rows, if it is contiguous, start at multiples of 16 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """A product of the captured sizes, as the launcher sees it."""

    batches: int
    m: int
    n: int
    k: int
    dtype: DType
    """Of the factors."""
    lhs: Factor
    rhs: Factor
    bytes: int
    """Factors and result, each moved once."""
    triangle: Triangle | None = None
    """The part of the result that is not set to zero."""
    extras: int = 0
    """Tensors of the result's size that its epilogue reads."""

    @property
    def are_many_small(self) -> bool:
        """Whether the library's and our time was measured for thousands of products like these."""
        small = self.m * self.n <= 64 * 64 and self.k <= 128
        return small and self.batches >= 1024 and self.dtype is DType.F32

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.batches * self.m * self.n * self.k

    def sides(self, config: TensorCoreConfig) -> tuple[Factor, Factor]:
        """The factors as they stand in the product that the config computes."""
        return (self.rhs, self.lhs) if config.transposed else (self.lhs, self.rhs)

    def tiles(self, block_m: int, block_n: int) -> int:
        """Tiles of that size that cover the result."""
        return self.batches * ceil(self.m / block_m) * ceil(self.n / block_n)


def product_shape(
    anchor: Contract,
    inputs: Sequence[ValueType],
    output: TensorType,
    triangle: Triangle | None = None,
) -> ProductShape:
    """The product that a contraction of these types is at the captured sizes."""
    found = roles(anchor)
    assert isinstance(found, Roles)
    lhs, rhs = reversed(inputs[:2]) if found.swapped else inputs[:2]
    assert isinstance(lhs, TensorType) and isinstance(rhs, TensorType)
    sizes = dict(zip(found.left, (dim.hint for dim in lhs.shape), strict=True))
    sizes |= dict(zip(found.right, (dim.hint for dim in rhs.shape), strict=True))
    # Batches that share the right factor are rows, as the launcher makes them where memory allows.
    shared = [letter for letter in found.batch if letter not in found.right]
    own = [letter for letter in found.batch if letter in found.right]
    chunk = 16 // lhs.dtype.itemsize

    def factor(letters: str, kind: TensorType, major: Major) -> Factor:
        aligned = sizes[letters[-1]] % chunk == 0
        return Factor(elements=kind.numel_hint, major=major, is_aligned=aligned)

    return ProductShape(
        batches=prod(sizes[letter] for letter in own),
        m=prod(sizes[letter] for letter in (*shared, *found.m)),
        n=sizes[found.n],
        k=sizes[found.k],
        dtype=lhs.dtype,
        lhs=factor(found.left, lhs, found.left_major),
        rhs=factor(found.right, rhs, found.right_major),
        bytes=lhs.bytes_hint + rhs.bytes_hint + output.bytes_hint,
        triangle=triangle,
        extras=sum(
            isinstance(kind, TensorType) and kind.numel_hint == output.numel_hint
            for kind in inputs[2:]
        ),
    )


def tensor_core_blocks(shape: ProductShape, config: TensorCoreConfig) -> int:
    """Tiles, those that fill up clusters included, times slices."""
    rows, columns = _cluster_tile(config)
    return shape.tiles(rows, columns) * config.cluster * config.slices


def _cluster_tile(config: TensorCoreConfig) -> tuple[int, int]:
    rows, columns = config.cluster_tile
    return (columns, rows) if config.transposed else (rows, columns)


def _empty_blocks(shape: ProductShape, config: TensorCoreConfig) -> int:
    """Tiles that the triangle sets to zero: they take one step."""
    if shape.triangle is None:
        return 0
    rows, columns = _cluster_tile(config)
    diagonal, upper = shape.triangle.diagonal, shape.triangle.kept is Side.UPPER
    wide = ceil(shape.n / columns)
    empty = 0
    for first in range(0, shape.m, rows):
        # Of columns on the left that lie wholly below the diagonal, or not wholly above it.
        edge = (first + diagonal) if upper else (first + rows - 1 + diagonal)
        left = max(0, min(wide, edge // columns + (0 if upper else 1)))
        empty += left if upper else wide - left
    return empty * shape.batches * config.cluster * config.slices


def is_buffered(config: TensorCoreConfig, machine: Machine) -> bool:
    """Whether the stages leave room for whole tiles of results (fp32 products alone use it)."""
    if config.feed in (Feed.DIRECT, Feed.INSIDE):
        return False
    rows, columns = config.BLOCK_M, config.block_n
    stage = 2 * (rows + columns) * config.BLOCK_K * 2
    used = config.stages * stage + rows * columns * 4 + SHARED_BYTES_OF_BARRIERS
    return used <= machine.shared_memory_per_block


def tensor_core_seconds(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Waves of tiles over the multiprocessors, and the kernels before and after."""
    buffered = is_buffered(config, machine)
    steps = ceil(ceil(shape.k / config.BLOCK_K) / config.slices)
    step = STEP_CYCLES[1 if config.feed is Feed.DIRECT else 3, config.block_n]
    step = INSIDE_STEP_CYCLES if config.feed is Feed.INSIDE else step
    step *= UNSHARED if config.cluster == 1 else 1.0
    step *= CONVERTING if config.feed is Feed.CONVERT else 1.0
    step *= SHALLOW if config.stages == 2 else 1.0
    end = BUFFERED_TILE_CYCLES if buffered else TILE_CYCLES
    around = end * config.block_n / 128 * (TURNED if config.transposed else 1.0)
    around += TOGETHER_CYCLES if config.cluster > 1 else 0
    # With few steps half of a block stores while the other half multiplies.
    few = not buffered and config.feed is not Feed.INSIDE and steps <= min(config.stages, 4)
    tile = max(steps * step, around) if few else steps * step + around
    empty = _empty_blocks(shape, config)
    waves = ceil((tensor_core_blocks(shape, config) - empty) / blocks_at_once(config, machine))
    cycles = waves * tile + empty / machine.sm_count * (step + around)
    result = shape.batches * shape.m * shape.n * shape.dtype.itemsize
    share = BUFFERED_STORE_BANDWIDTH if buffered else STORE_BANDWIDTH
    storing = result / (share * machine.write_bandwidth)
    storing *= CONVERTING if config.feed is Feed.CONVERT else 1.0
    storing *= NARROW if config.block_n < 128 else 1.0
    moving = storing + (shape.bytes - result) / (TENSOR_CORE_BANDWIDTH * machine.copy_bandwidth)
    return max(cycles / CLOCK, moving) + _around(shape, config, machine) + LAUNCH_SECONDS


def blocks_at_once(config: TensorCoreConfig, machine: Machine) -> int:
    """One on each multiprocessor, but for those that whole clusters do not find together."""
    share = FOUR_AT_ONCE if config.cluster == 4 else 1.0
    return int(machine.sm_count * share) // config.cluster * config.cluster


def elements_ahead(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> int:
    """Elements that the first of two launches splits for the second; 0 where one launch is better.

    The launcher cuts the sizes of a call in the same way (gemm_sm90_cut.cuh).
    """
    by_columns = shape.n >= shape.m
    factor = shape.rhs if by_columns else shape.lhs
    can_cut = factor.major is not Major.NONE and factor.is_aligned and not config.transposed
    if shape.batches > 1 or shape.triangle is not None or not can_cut:
        return 0
    rows, columns = (
        ceil(size / tile)
        for size, tile in zip((shape.m, shape.n), _cluster_tile(config), strict=True)
    )
    size, across = (columns, rows) if by_columns else (rows, columns)
    at_once = machine.sm_count // config.cluster
    of_line = across * config.cluster * ceil(shape.k / config.BLOCK_K) * AHEAD_OF_STEP

    def waves(lines: int) -> int:
        return ceil(lines * across / at_once)

    least = int(size * factor.elements / (factor.elements + size * of_line)) + 1
    for first in range(least, min(size, least + at_once)):
        if waves(first) + waves(size - first) <= waves(size):
            ahead = factor.elements * (size - first) // size
            return ahead if ahead >= config.least_ahead else 0
    return 0


def _around(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Seconds of the kernels before and after: they split factors, and add slices or check."""
    if config.feed is Feed.DIRECT:
        return 0.0
    lhs, rhs = shape.sides(config)
    split = rhs.elements + (lhs.elements if config.feed is not Feed.CONVERT else 0)
    seconds = NEXT_LAUNCH_SECONDS
    if config.feed is Feed.INSIDE:
        split = 0
        seconds = 0.0
    if config.feed is Feed.AHEAD:
        split -= elements_ahead(shape, config, machine)
        seconds += NEXT_LAUNCH_SECONDS
    seconds += split * 8 / SPLIT_BANDWIDTH
    if config.slices > 1 or config.feed in (Feed.CONVERT, Feed.INSIDE):
        seconds += NEXT_LAUNCH_SECONDS
    if config.slices > 1:
        partials = config.slices * shape.batches * shape.m * shape.n * 4
        seconds += 2 * partials / machine.copy_bandwidth
    return seconds


def thin_seconds(shape: ProductShape, config: ThinConfig, machine: Machine) -> float:
    """Reading the wide factor once, or multiplying it with every row that there is room for."""
    moving = shape.bytes / (THIN_BANDWIDTH * machine.read_bandwidth)
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    products = shape.batches * max(shape.m, shape.n) * shape.k * config.rows
    multiplying = 2 * products / (THIN_SHARE * machine.flops[unit])
    return max(moving, multiplying) + LAUNCH_SECONDS + NEXT_LAUNCH_SECONDS


def simt_registers(config: GemmConfig, itemsize: int) -> int:
    """Of a thread: accumulators, one fragment of each operand, and about 40 for addresses."""
    fragments = config.thread_m + config.thread_n
    return max(1, itemsize // 4) * (config.thread_m * config.thread_n + fragments) + 40


def simt_seconds(shape: ProductShape, config: GemmConfig, machine: Machine) -> float:
    """Waves of tiles times the time of one tile, on the CUDA cores."""
    # An SM runs as many blocks as its registers hold, and 512 threads hide its latencies.
    fitting = machine.registers_per_sm // (simt_registers(config, 4) * config.threads)
    resident = max(1, min(512 // config.threads, fitting))
    tiles = shape.tiles(config.block_m, config.block_n)
    waves = ceil(tiles / (machine.sm_count * resident))
    work = config.block_m * config.block_n * resident * 2 * shape.k
    # Shared-memory reads and global loads for each multiply-add, and barriers for each step of K,
    # all slow a step down; the weights are fitted to benchmarks/results/kernels_h200.json.
    reads = 1 / config.thread_m + 1 / config.thread_n
    loads = 1 / config.block_m + 1 / config.block_n
    shallow = 0.02 if config.stages == 2 else 0.0
    overhead = 1 + 0.6 * reads + 25 * loads + 0.5 / config.block_k + shallow
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    rate = machine.flops[unit] / machine.sm_count
    moving = shape.bytes / machine.copy_bandwidth
    # Blocks store when they have multiplied, all at about one time.
    result = shape.batches * shape.m * shape.n * shape.dtype.itemsize
    storing = result / (STORE_BANDWIDTH * machine.write_bandwidth)
    return max(waves * work * overhead / rate + storing, moving) + LAUNCH_SECONDS


def library_seconds(shape: ProductShape, machine: Machine) -> float:
    """cuBLAS, which has a kernel for every shape."""
    rate = LIBRARY_SHARE[shape.dtype] * machine.flops.get(LIBRARY_UNIT[shape.dtype], 0.0)
    rate = rate or machine.flops["fp32_simt"]  # A card without the 16-bit type.
    return _left_seconds(shape, machine, rate, LIBRARY_TILE_SECONDS[shape.dtype])


def convolution_seconds(shape: ProductShape, machine: Machine) -> float:
    """The same product as a convolution of one tap, by cuDNN.

    PyTorch lets it multiply fp32 as TF32 unless told otherwise (torch.backends.cudnn.allow_tf32).
    """
    if shape.dtype is not DType.F32 or "tf32" not in machine.flops:
        return library_seconds(shape, machine)
    rate = CONVOLUTION_SHARE * machine.flops["tf32"]
    return _left_seconds(shape, machine, rate, CONVOLUTION_TILE_SECONDS)


def _left_seconds(shape: ProductShape, machine: Machine, rate: float, tile: float) -> float:
    tiles = shape.tiles(128, 128) / machine.sm_count * tile
    moving = shape.bytes / (LIBRARY_BANDWIDTH * machine.copy_bandwidth)
    return max(2 * shape.products / rate + tiles, moving) + LIBRARY_SECONDS


def is_convincing(
    config: ProductConfig, shape: ProductShape, seconds: float, library: float
) -> bool:
    """Whether the model's promise is worth leaving the library.

    It knows shapes that fill the card within some 20 %, and small ones, which both sides spend on
    launches and latencies, hardly: of 200 random fp32 products those that it is trusted with here
    were faster on an H200 with few exceptions, and of the others half were slower.
    """
    if shape.dtype is not DType.F32:
        return seconds <= library
    match config:
        case TensorCoreConfig():
            return 1.3 * seconds <= library and library >= 22e-6
        case ThinConfig():
            wide = max(shape.lhs, shape.rhs, key=lambda factor: factor.elements)
            return seconds <= library and library >= 6.5e-6 and wide.is_aligned
        case _:
            # Beaten by cuBLAS where nothing is fused with the product.
            return False
