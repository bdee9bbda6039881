"""How long a matrix product takes on tensor cores, in each configuration.

Every limit and rate comes from the machine.
"""

from math import ceil

from kernelwright.ir.anchors import Side
from kernelwright.ir.product_configs import Feed, Major, TensorCoreConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine, WarpgroupRates
from kernelwright.schedule.product_shape import ProductShape
from kernelwright.schedule.turn_model import turn_cycles

ROW_BYTES = 128
"""Bytes of a row of a tile's factor in a step (`Sm90Tile::ROW_BYTES`)."""
SHARED_BYTES_OF_BARRIERS = 2 * 1024
"""Shared memory of barriers and of what alignment costs, bytes."""
_FEW_STEPS = 4
"""Steps of a tile that waits more than it multiplies: nothing hides its stores."""


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
    # Plain products of 16 bits were timed with what their clusters share: see turn_cycles.
    arriving = 0.0 if shape.is_short else _arriving_cycles(shape, config, rates)
    return turn_cycles(
        config,
        steps,
        waves,
        shape.n,
        shape.extras,
        arriving,
        rates,
        rates.short_turns if shape.is_short else rates.turns,
        vector=machine.limits.access_bytes // shape.dtype.itemsize,
        waits=shape.joined > 0 and steps <= _FEW_STEPS,
    )


def _band_cycles(shape: ProductShape, config: TensorCoreConfig, machine: Machine) -> float:
    """Cycles of the multiprocessor with most tiles, where taps share their pixels."""
    rates = warpgroup_rates(machine)
    steps, columns = shape.steps(config), min(config.block_n, shape.n)
    missing = rates.missing_row_cycles * (config.block_n - columns)
    row = ROW_BYTES / rates.turns.bytes
    arriving = row * config.pixels + config.taps * (row * columns + missing)
    multiplying = config.taps * rates.band_tap_cycles[config.block_n]
    around = rates.tile_cycles * columns / 128 * (1.0 + rates.turns.extra * shape.extras)
    step = max(arriving, multiplying, rates.copy_cycles / config.stages)
    tile = rates.short_tile_cycles + steps * step + around
    tiles = ceil(shape.padded / config.block_m) * ceil(shape.n / config.block_n)
    return ceil(tiles / blocks_at_once(config, machine)) * tile


def _arriving_cycles(shape: ProductShape, config: TensorCoreConfig, rates: WarpgroupRates) -> float:
    """Cycles in which a multiprocessor gets the rows of a step while the others do, too: the
    columns of a tile that the result does not have are rows of zeros."""
    size = shape.m if config.transposed else shape.n
    columns = size / ceil(size / config.block_n)
    row = rates.patch_row_cycles if shape.taps > 1 else ROW_BYTES / rates.turns.bytes
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
    is_short = is_direct and shape.is_short
    step *= rates.short_step if is_short else 1.0
    arriving = 0.0
    if is_direct and 2 * tensor_core_blocks(shape, config) >= machine.sm_count:
        step *= rates.many_narrow if config.block_n < 128 else 1.0
        arriving = 0.0 if is_short else _arriving_cycles(shape, config, rates)
    step = max(step, arriving, rates.copy_cycles / config.stages if is_direct else 0.0)
    step *= rates.converting if config.feed is Feed.CONVERT else 1.0
    step *= rates.two_stages if config.stages == 2 else 1.0
    end = rates.buffered_tile_cycles if buffered else rates.tile_cycles
    if shape.dtype is DType.F32 and shape.n * shape.dtype.itemsize % machine.limits.access_bytes:
        end = max(end, rates.unaligned_tile_cycles)
    columns = config.block_n if config.transposed else min(config.block_n, shape.n)
    around = end * columns / 128 * (rates.transposed if config.transposed else 1.0)
    around *= rates.short_tile * (1.0 + rates.short_extra * shape.extras) if is_short else 1.0
    around += rates.cluster_tile_cycles if config.cluster > 1 else 0
    few = (
        not buffered and config.feed is not Feed.INSIDE and steps <= min(config.stages, _FEW_STEPS)
    )
    if is_direct and ((few and shape.joined > 0) or config.resident > 1):
        around *= 1.0 + rates.turns.extra * shape.extras
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


def warpgroup_rates(machine: Machine) -> WarpgroupRates:
    """The rates of a card for which there are tensor-core configurations."""
    assert machine.warpgroups is not None, f"{machine.name} has no products by warpgroups"
    return machine.warpgroups
