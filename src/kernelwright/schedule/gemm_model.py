"""How long a matrix product takes in each configuration, and in PyTorch's library.

Every limit and rate comes from the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.configs import (
    Feed,
    GemmConfig,
    Major,
    ProductConfig,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.kinds import Contract, Patches, Reduction
from kernelwright.ir.types import DType, TensorType, ValueType
from kernelwright.machine import Machine, WarpgroupRates
from kernelwright.schedule.gemm_work import contraction_sizes
from kernelwright.schedule.roles import Roles, roles
from kernelwright.schedule.turn_model import turn_cycles

ROW_BYTES = 128
"""Bytes of a row of a tile's factor in a step (`Sm90Tile::ROW_BYTES`)."""
SHARED_BYTES_OF_BARRIERS = 2 * 1024
"""Shared memory of barriers and of what alignment costs, bytes."""
_FEW_STEPS = 4
"""Steps of a tile that waits more than it multiplies: nothing hides its stores."""
LIBRARY_UNIT = {
    DType.F32: "fp32_simt",
    DType.F64: "fp64_simt",
    DType.F16: "fp16",
    DType.BF16: "bf16",
}
"""The arithmetic that the library multiplies a type with, a key of `Machine.flops`."""


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
    """Element type of the operands."""
    lhs: Factor
    rhs: Factor
    bytes: int
    """Factors and result, each moved once."""
    triangle: Triangle | None = None
    """The part of the result that is not set to zero."""
    extras: int = 0
    """Tensors of the result's size that its epilogue reads."""
    joined: int = 0
    """Tensors of any size that it reads."""
    rounds: bool = False
    """Whether float32 factors may be rounded to TF32."""
    kept: Reduction | None = None
    """What a row of the result is reduced to before anything is written."""
    pairs: bool = False
    """Whether the left factor comes in pairs (`Kernel.pairs`)."""
    apart: int = 1
    """Batches, of all, that share a right factor and whose rows do not lie together."""
    taps: int = 1
    """Parts of K, each of which begins with a step of its own."""
    reach: int = 0
    """Padded pixels from the first to the last of taps that can share them."""
    padded: int = 0
    """Padded pixels of all images, likewise."""

    @property
    def copied(self) -> "ProductShape":
        """The product as PyTorch computes it: of a copy, where rows do not lie together."""
        batches, m = self.batches // max(1, self.apart), self.m * self.apart
        return replace(self, batches=batches, m=m, apart=1)

    def together(self, count: int) -> "ProductShape":
        """So many of these products in one launch, which share the left factor."""
        others = (count - 1) * (self.bytes - self.lhs.elements * self.dtype.itemsize)
        return replace(
            self,
            batches=self.batches * count,
            rhs=replace(self.rhs, elements=self.rhs.elements * count),
            bytes=self.bytes + others,
        )

    def are_many_small(self, machine: Machine) -> bool:
        """Whether the library's and our time was measured for thousands of products like these."""
        small = self.m * self.n <= machine.many_small.most_result
        return small and self.have_small_tiles(machine)

    def have_small_tiles(self, machine: Machine) -> bool:
        """Whether small tiles are worth a try: a product is over before a pipeline has filled."""
        known = machine.many_small
        small = self.m * self.n <= known.most_tiled_result and self.k <= known.most_k
        return small and self.batches >= known.least_batches and self.dtype is DType.F32

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.batches * self.m * self.n * self.k

    @property
    def result_bytes(self) -> int:
        """Bytes that are written."""
        columns = self.n if self.kept is None else 1
        return self.batches * self.m * columns * self.dtype.itemsize

    def sides(self, config: TensorCoreConfig) -> tuple[Factor, Factor]:
        """The factors as they stand in the product that the config computes."""
        return (self.rhs, self.lhs) if config.transposed else (self.lhs, self.rhs)

    def steps(self, config: TensorCoreConfig) -> int:
        """Steps along K."""
        return self.taps // config.taps * ceil(self.k // self.taps / config.block_k)

    def tiles(self, block_m: int, block_n: int) -> int:
        """Tiles of that size that cover the result."""
        return self.batches * ceil(self.m / block_m) * ceil(self.n / block_n)


def product_shape(
    anchor: Contract,
    inputs: Sequence[ValueType],
    output: TensorType,
    triangle: Triangle | None = None,
    kept: Reduction | None = None,
) -> ProductShape:
    """The product that a contraction of these types is at the captured sizes."""
    found = roles(anchor)
    assert isinstance(found, Roles)
    lhs, rhs = reversed(inputs[:2]) if found.swapped else inputs[:2]
    assert isinstance(lhs, TensorType) and isinstance(rhs, TensorType)
    sizes = contraction_sizes(anchor, inputs, output)
    own = [letter for letter in found.batch if letter in found.right]
    # Batches that share the right factor are rows, as the launcher makes them where memory allows:
    # the last ones, as far as they stand together in the left factor and in the result.
    left, out, rows = (
        "".join(letter for letter in word if sizes[letter] != 1)
        for word in (found.left, anchor.out, found.batch + found.m)
    )
    rows = "".join(letter for letter in rows if letter not in found.right)
    at = next(at for at in range(len(rows) + 1) if rows[at:] in left and rows[at:] in out)
    apart = prod(sizes[letter] for letter in rows[:at])
    chunk = 16 // lhs.dtype.itemsize
    k = sizes[found.k]

    def factor(letters: str, kind: TensorType, major: Major) -> Factor:
        aligned = sizes[letters[-1]] % chunk == 0
        return Factor(elements=kind.numel_hint, major=major, is_aligned=aligned)

    reach, padded = _shared_pixels(anchor.patches, output)
    return ProductShape(
        batches=apart * prod(sizes[letter] for letter in own),
        m=prod(sizes[letter] for letter in rows[at:]),
        n=sizes[found.n],
        k=k,
        dtype=lhs.dtype,
        lhs=factor(found.left, lhs, found.left_major),
        rhs=factor(found.right, rhs, found.right_major),
        bytes=lhs.bytes_hint + rhs.bytes_hint + output.bytes_hint,
        triangle=triangle,
        kept=kept,
        extras=sum(
            isinstance(kind, TensorType) and kind.numel_hint == output.numel_hint
            for kind in inputs[2:]
        ),
        joined=sum(isinstance(kind, TensorType) for kind in inputs[2:]),
        rounds=anchor.may_round,
        apart=apart,
        taps=1 if anchor.patches is None else prod(anchor.patches.taps),
        reach=reach,
        padded=padded,
    )


def _shared_pixels(patches: Patches | None, output: TensorType) -> tuple[int, int]:
    """Reach and count of pixels that taps share; 0 where patches begin further apart."""
    if patches is None or patches.stride != (1, 1) or prod(patches.taps) == 1:
        return 0, 0
    pairs = zip(patches.taps, patches.dilation, strict=True)
    down, across = ((taps - 1) * dilation for taps, dilation in pairs)
    images, height, width, _ = (dim.hint for dim in output.shape)
    padded = width + across
    return down * padded + across, images * (height + down) * padded


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
    if config.feed.is_direct or config.feed is Feed.INSIDE:
        return False
    rows, columns = config.block_m, config.block_n
    stage = 2 * (rows + columns) * config.block_k * 2
    used = config.stages * stage + rows * columns * 4 + SHARED_BYTES_OF_BARRIERS
    return used <= machine.shared_memory_per_block


def tensor_core_seconds(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Waves of tiles over the multiprocessors, and the kernels before and after."""
    rates = warpgroup_rates(machine)
    of_tiles = {Feed.TURNS: _turn_cycles, Feed.BAND: _band_cycles}.get(config.feed, _tile_cycles)
    cycles = of_tiles(shape, config, machine)
    result = shape.result_bytes
    share = rates.buffered_store_share if is_buffered(config, machine) else rates.store_share
    storing = result / (share * machine.write_bandwidth)
    storing *= rates.converting if config.feed is Feed.CONVERT else 1.0
    storing *= rates.narrow_store if config.block_n < min(128, shape.n) else 1.0
    few = config.feed.is_direct and 2 * min(shape.m, shape.n) <= config.block_m
    share = rates.few_rows_share if few else rates.operand_share
    moving = storing + (shape.bytes - result) / (share * machine.copy_bandwidth)
    return max(cycles / rates.clock, moving) + _around(shape, config, machine)


def _turn_cycles(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Cycles of the multiprocessor with most tiles, where warpgroups take turns."""
    steps = shape.steps(config)
    waves = ceil(tensor_core_blocks(shape, config) / blocks_at_once(config, machine))
    rates = warpgroup_rates(machine)
    arriving = _arriving_cycles(shape, config, rates)
    waits = shape.joined > 0 and steps <= _FEW_STEPS
    return turn_cycles(config, steps, waves, shape.n, shape.extras, arriving, rates, waits=waits)


def _band_cycles(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Cycles of the multiprocessor with most tiles, where taps share their pixels."""
    rates = warpgroup_rates(machine)
    steps, columns = shape.steps(config), min(config.block_n, shape.n)
    missing = rates.missing_row_cycles * (config.block_n - columns)
    row = ROW_BYTES / rates.turn_bytes
    arriving = row * config.pixels + config.taps * (row * columns + missing)
    multiplying = config.taps * rates.band_tap_cycles[config.block_n]
    around = rates.tile_cycles * columns / 128 * (1.0 + rates.turn_extra * shape.extras)
    step = max(arriving, multiplying, rates.copy_cycles / config.stages)
    tile = rates.short_tile_cycles + steps * step + around
    tiles = ceil(shape.padded / config.block_m) * ceil(shape.n / config.block_n)
    return ceil(tiles / blocks_at_once(config, machine)) * tile


def _arriving_cycles(shape: ProductShape, config: TensorCoreConfig, rates: WarpgroupRates) -> float:
    """Cycles in which a multiprocessor gets the rows of a step while the others do, too: the
    columns of a tile that the result does not have are rows of zeros."""
    size = shape.m if config.transposed else shape.n
    columns = size / ceil(size / config.block_n)
    row = rates.patch_row_cycles if shape.taps > 1 else ROW_BYTES / rates.turn_bytes
    missing = rates.missing_row_cycles * (config.block_n - columns)
    return row * (config.block_m + columns) + missing


def _tile_cycles(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Cycles of the multiprocessor with most tiles, where warpgroups have them together."""
    rates = warpgroup_rates(machine)
    buffered = is_buffered(config, machine)
    steps = ceil(shape.steps(config) / config.slices)
    step = rates.step_cycles[1 if config.feed is Feed.DIRECT else 3, config.block_n]
    step = rates.inside_step_cycles if config.feed is Feed.INSIDE else step
    step *= rates.unshared if config.cluster == 1 else 1.0
    is_direct = config.feed is Feed.DIRECT
    arriving = 0.0
    if is_direct and 2 * tensor_core_blocks(shape, config) >= machine.sm_count:
        step *= rates.many_narrow if config.block_n < 128 else 1.0
        arriving = _arriving_cycles(shape, config, rates)
    step = max(step, arriving, rates.copy_cycles / config.stages if is_direct else 0.0)
    step *= rates.converting if config.feed is Feed.CONVERT else 1.0
    step *= rates.two_stages if config.stages == 2 else 1.0
    end = rates.buffered_tile_cycles if buffered else rates.tile_cycles
    if shape.dtype is DType.F32 and shape.n * shape.dtype.itemsize % machine.limits.access_bytes:
        end = max(end, rates.unaligned_tile_cycles)
    columns = config.block_n if config.transposed else min(config.block_n, shape.n)
    around = end * columns / 128 * (rates.transposed if config.transposed else 1.0)
    around += rates.cluster_tile_cycles if config.cluster > 1 else 0
    few = (
        not buffered and config.feed is not Feed.INSIDE and steps <= min(config.stages, _FEW_STEPS)
    )
    if is_direct and ((few and shape.joined > 0) or config.resident > 1):
        around *= 1.0 + rates.turn_extra * shape.extras
        tile = rates.short_tile_cycles + steps * step + around
        tile = max(tile, config.resident * max(steps * arriving, rates.resident_share * tile))
    else:
        # With few steps half of a block stores while the other half multiplies.
        tile = max(steps * step, around) if few else steps * step + around
    empty = _empty_blocks(shape, config)
    waves = ceil((tensor_core_blocks(shape, config) - empty) / blocks_at_once(config, machine))
    return waves * tile + empty / machine.sm_count * (step + around)


def edge_seconds(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Seconds that tiles with an edge of the result take besides where others join it: each element
    looks whether it exists, and finds what joins it."""
    rows, columns = _cluster_tile(config)
    whole = (shape.m // rows) * (shape.n // columns)
    tiles = shape.batches * (ceil(shape.m / rows) * ceil(shape.n / columns) - whole)
    rates = warpgroup_rates(machine)
    of_block = tiles * config.cluster / blocks_at_once(config, machine)
    return of_block * rates.joined_edge_cycles / rates.clock


def blocks_at_once(config: TensorCoreConfig, machine: Machine) -> int:
    """As many on each multiprocessor as the config has, but for those that whole clusters do not
    find together."""
    share = warpgroup_rates(machine).clusters_of_four if config.cluster == 4 else 1.0
    return int(machine.sm_count * share) // config.cluster * config.cluster * config.resident


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
    steps = shape.steps(config)
    of_line = across * config.cluster * steps * warpgroup_rates(machine).ahead_elements

    def waves(lines: int) -> int:
        return ceil(lines * across / at_once)

    least = int(size * factor.elements / (factor.elements + size * of_line)) + 1
    for first in range(least, min(size, least + at_once)):
        if waves(first) + waves(size - first) <= waves(size):
            ahead = factor.elements * (size - first) // size
            return ahead if ahead >= config.least_ahead else 0
    return 0


def _around(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Seconds of launches and the kernels before and after: they split factors, and add slices or
    check."""
    launches = machine.launches
    if config.feed.is_direct:
        # Keys of rows are cleared before, and become results after it.
        others = 0 if shape.kept is None else 2
        seconds = launches.product_seconds + others * launches.next_seconds
        return seconds + _adding(shape, config, machine)
    rates = warpgroup_rates(machine)
    lhs, rhs = shape.sides(config)
    is_split = config.feed not in (Feed.CONVERT, Feed.PAIRED)
    split = rhs.elements + (lhs.elements if is_split else 0)
    seconds = launches.product_seconds + launches.next_seconds
    if config.feed is Feed.INSIDE:
        split = 0
    if config.feed is Feed.AHEAD:
        split -= elements_ahead(shape, config, machine)
        seconds += launches.next_seconds
    seconds = max(seconds + split * 8 / rates.split_bandwidth, rates.least_seconds)
    if config.slices == 1 and config.feed is Feed.CONVERT:
        seconds += launches.next_seconds
    return seconds + _adding(shape, config, machine)


def _adding(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Seconds of the kernel that adds slices, and of writing them for it."""
    if config.slices == 1:
        return 0.0
    partials = config.slices * shape.batches * shape.m * shape.n * 4
    return machine.launches.next_seconds + 2 * partials / machine.copy_bandwidth


def thin_seconds(shape: ProductShape, config: ThinConfig, machine: Machine) -> float:
    """Reading the wide factor once, or multiplying it with every row that there is room for."""
    moving = shape.bytes / (machine.thin.read_share * machine.read_bandwidth)
    # Fewer rows than a thread reads ahead: as many fewer bytes are in flight.
    moving *= max(1.0, config.step / max(1, shape.k))
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    tiles = ceil(min(shape.m, shape.n) / config.rows)
    products = shape.batches * max(shape.m, shape.n) * shape.k * config.rows * tiles
    rates = machine.thin
    launching = machine.launches.product_seconds + machine.launches.next_seconds
    if config.row_tiles > 1:
        # Tiles of other rows read what is in the cache.
        multiplying = 2 * products / (rates.tiled_share * machine.flops[unit])
        return moving + multiplying + launching + rates.tiled_seconds
    if config.rows > rates.tiled_rows:
        # So many rows leave room for few warps, and nothing hides how they begin and end.
        launching += 2 * rates.tiled_seconds + min(moving, 4 * rates.tiled_seconds)
    multiplying = 2 * products / (rates.arithmetic_share * machine.flops[unit])
    return max(moving, multiplying) + launching


def warpgroup_rates(machine: Machine) -> WarpgroupRates:
    """The rates of a card for which there are tensor-core configurations."""
    assert machine.warpgroups is not None, f"{machine.name} has no products by warpgroups"
    return machine.warpgroups


def simt_registers(config: GemmConfig, itemsize: int, machine: Machine) -> int:
    """Registers of a thread: accumulators, one fragment of each operand, and addresses."""
    values = config.thread_m * config.thread_n + config.thread_m + config.thread_n
    return max(1, itemsize // 4) * values + machine.cuda_cores.other_registers


def simt_seconds(shape: ProductShape, config: GemmConfig, machine: Machine) -> float:
    """Waves of tiles times the time of one tile, on the CUDA cores."""
    rates = machine.cuda_cores
    # An SM runs as many blocks as its registers hold, and some threads hide its latencies.
    fitting = machine.registers_per_sm // (simt_registers(config, 4, machine) * config.threads)
    resident = max(1, min(rates.hiding_threads // config.threads, fitting))
    tiles = shape.tiles(config.block_m, config.block_n)
    waves = ceil(tiles / (machine.sm_count * resident))
    # What K lacks of whole steps is multiplied, too.
    depth = ceil(shape.k / config.block_k) * config.block_k
    work = config.block_m * config.block_n * resident * 2 * depth
    # Shared-memory reads and global loads for each multiply-add, and barriers for each step of K,
    # all slow a step down.
    reads = 1 / config.thread_m + 1 / config.thread_n
    loads = 1 / config.block_m + 1 / config.block_n
    shallow = rates.two_stages if config.stages == 2 else 0.0
    overhead = 1 + rates.shared_read * reads + rates.global_load * loads
    overhead += rates.barrier / config.block_k + shallow
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    rate = machine.flops[unit] / machine.sm_count
    moving = shape.bytes / machine.copy_bandwidth
    # Blocks store when they have multiplied, all at about one time.
    result = shape.batches * shape.m * shape.n * shape.dtype.itemsize
    storing = result / (rates.store_share * machine.write_bandwidth)
    seconds = max(waves * work * overhead / rate + storing, moving)
    return seconds + machine.launches.product_seconds


def library_seconds(shape: ProductShape, machine: Machine, *, adds_bias: bool = False) -> float:
    """cuBLAS, which has a kernel for every shape; `adds_bias`: in the same call."""
    unit = LIBRARY_UNIT[shape.dtype]
    found = machine.library.products[unit]
    share = machine.library.unaligned_short if _is_unaligned_short(shape) else found.share
    rate = share * machine.flops.get(unit, 0.0)
    rate = rate or machine.flops["fp32_simt"]  # A card without the 16-bit type.
    seconds = _left_seconds(shape, machine, rate, found.tile_seconds)
    return max(
        seconds, machine.library.call_seconds + _steps_seconds(shape, machine, adds_bias=adds_bias)
    )


def _is_unaligned_short(shape: ProductShape) -> bool:
    """Whether a 16-bit product has rows for which cuBLAS takes kernels of older cards."""
    chunk = 16 // shape.dtype.itemsize
    is_aligned = shape.lhs.is_aligned and shape.rhs.is_aligned and shape.n % chunk == 0
    return shape.dtype in (DType.F16, DType.BF16) and not is_aligned


def _steps_seconds(shape: ProductShape, machine: Machine, *, adds_bias: bool) -> float:
    """Least seconds of the library's steps along K; 0 for few rows: those have own kernels."""
    rates, least = machine.library, min(shape.m, shape.n)
    if shape.batches > 1 or shape.dtype is not DType.F32 or least < machine.thin.tiled_rows:
        return 0.0
    if adds_bias and least >= rates.biased_rows:
        # Tiles of 128 x 64, however few, and no K that is cut.
        return shape.k * rates.biased_k_seconds
    return min(shape.k, rates.known_k) * rates.k_seconds


def convolution_seconds(shape: ProductShape, machine: Machine) -> float:
    """Seconds of the product as a convolution of one tap, by cuDNN.

    PyTorch lets it multiply fp32 as TF32 unless told otherwise (torch.backends.cudnn.allow_tf32).
    """
    if shape.dtype is not DType.F32 or "tf32" not in machine.flops:
        return library_seconds(shape, machine)
    found = machine.library.convolutions
    return _left_seconds(shape, machine, found.share * machine.flops["tf32"], found.tile_seconds)


def patches_seconds(shape: ProductShape, machine: Machine) -> float:
    """Seconds of the product as a convolution of patches of few channels, by cuDNN."""
    assert machine.convolutions is not None
    kind = "fp32" if shape.dtype is DType.F32 else "short_few"
    rate = machine.convolutions.library[kind]
    seconds = 2 * shape.products / rate.flops + shape.bytes / rate.bandwidth
    return seconds + machine.library.call_seconds


def _left_seconds(shape: ProductShape, machine: Machine, rate: float, tile: float) -> float:
    tiles = shape.tiles(128, 128) / machine.sm_count * tile
    moving = shape.bytes / (machine.library.bandwidth_share * machine.copy_bandwidth)
    return max(2 * shape.products / rate + tiles, moving) + machine.library.call_seconds


def is_convincing(
    config: ProductConfig, shape: ProductShape, seconds: float, library: float, machine: Machine
) -> bool:
    """Whether the model's promise is worth leaving the library.

    It knows shapes that fill the card within some 20 %, and small ones, which both sides spend on
    launches and latencies, hardly.
    """
    known = machine.library
    if shape.dtype in (DType.F16, DType.BF16) and library < known.short_seconds:
        return known.short_margin * seconds <= library
    if shape.dtype is not DType.F32:
        return seconds <= library
    match config:
        case TensorCoreConfig():
            return known.margin * seconds <= library and library >= known.known_seconds
        case ThinConfig():
            wide = max(shape.lhs, shape.rhs, key=lambda factor: factor.elements)
            enough = library >= known.known_thin_seconds
            return seconds <= library and enough and wide.is_aligned
        case _:
            # Beaten by cuBLAS where nothing is fused with the product.
            return False
