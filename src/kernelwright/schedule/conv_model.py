"""How long a convolution takes in each configuration, and in PyTorch's library.

Every rate comes from the machine (docs/measured/convolution.md).
"""

from dataclasses import dataclass
from math import ceil, prod

from kernelwright.ir.conv_configs import ConvConfig, ConvSchedule, ConvStore, RowTaps
from kernelwright.ir.kinds import TileMoments
from kernelwright.machine import ConvolutionRates, Machine
from kernelwright.schedule.conv_shape import ConvSizes

PATCH_COST = 0.0001
"""Share of a block that a pixel of its patch counts (ConvVariant::plan_halo)."""
_STAGE_K = 64
_SECTOR_BYTES = 32
_BATCH = 1024
"""Elements of a filter, or pairs of them, that a block has in flight."""
_WARP_ROWS = 16
_MOST_BOX = 256
"""Pixels along a side of a copied box."""


def seen_by(config: ConvConfig, sizes: ConvSizes) -> ConvSizes:
    """The sizes with what the configuration joins."""
    return sizes.with_joined(config.joined).with_outputs(config.outputs)


def channel_pitch(channels: int) -> int:
    """Channels of a pixel in the planes: rows of 16 bytes."""
    return ceil(channels / 8) * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mainloop:
    """The sums of one phase as the tensor cores compute them."""

    taps: int
    """Taps of a phase, each a copy of pixels."""
    chunks: int
    """Parts of a tap's channels."""


def row_window(sizes: ConvSizes, config: ConvConfig) -> int:
    """Taps of a row that are the channels of one."""
    taps = sizes.axes[0].taps
    if config.row_taps is RowTaps.FOLDED:
        return taps
    if config.row_taps is RowTaps.APART:
        return 1
    return min(taps, config.chunk // channel_pitch(sizes.in_channels))


def mainloop(sizes: ConvSizes, config: ConvConfig) -> Mainloop:
    """Taps and chunks that remain when a row's taps are channels."""
    window, channels = row_window(sizes, config), sizes.in_channels
    if config.row_taps is RowTaps.FOLDED:
        channels *= window
    elif config.row_taps is RowTaps.OVERLAPPING:
        channels = window * channel_pitch(channels)
    along = ceil(sizes.axes[0].taps / window) if window > 1 else sizes.axes[0].most_taps
    others = prod(axis.most_taps for axis in sizes.axes[1:])
    return Mainloop(taps=along * others, chunks=ceil(channels / config.chunk))


@dataclass(frozen=True, slots=True, kw_only=True)
class Halo:
    """Blocks of positions whose patch of the input is in shared memory (conv_halo.cuh)."""

    columns: int
    rows: int
    pitch: int
    patch_rows: int
    blocks: int
    """Blocks of a phase."""


def halo(sizes: ConvSizes, config: ConvConfig) -> Halo | None:
    """The widths and heights of a block that need the fewest, as the launcher finds them.

    `sizes`: with phases joined as in the configuration.
    """
    width, height = sizes.axes[0], sizes.axes[1]
    loop, pixel = mainloop(sizes, config), _chunk_bytes(config)
    if width.step != 1 or height.step != 1 or (_STAGE_K // whole_chunk(config) > 1 < loop.chunks):
        return None
    best: Halo | None = None
    least = 0.0
    for tiles in range(1, width.positions + 1):
        columns = ceil(width.positions / tiles)
        pitch = columns + width.last_offset
        if columns > config.positions or pitch > _MOST_BOX:
            continue
        if columns < 8 and best is not None:
            break
        rows = min((config.positions - columns) // pitch + 1, height.positions)
        room = config.positions + height.last_offset * pitch + width.last_offset
        patch_rows = ceil(room / pitch)
        if patch_rows > _MOST_BOX or patch_rows * pitch * pixel > config.patch_bytes:
            continue
        blocks = tiles * ceil(height.positions / rows)
        cost = blocks * (1 + PATCH_COST * patch_rows * pitch)
        if best is None or cost < least:
            least = cost
            others = sizes.images * prod(axis.positions for axis in sizes.axes[2:])
            best = Halo(
                columns=columns,
                rows=rows,
                pitch=pitch,
                patch_rows=patch_rows,
                blocks=blocks * others,
            )
    return best


def whole_chunk(config: ConvConfig) -> int:
    """Channels of a copy: of 48, 64 come."""
    return 64 if config.chunk == 48 else config.chunk


def _chunk_bytes(config: ConvConfig) -> int:
    return whole_chunk(config) * 2


def conv_rates(machine: Machine) -> ConvolutionRates:
    """The rates of a card for which there are configurations."""
    assert machine.convolutions is not None, f"{machine.name} has no convolutions by warpgroups"
    return machine.convolutions


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Tiles of positions whose pixels are runs of the planes (conv_linear.cuh)."""

    pixels: int
    """Pixels of a run: what a tile's taps of one D meet."""
    pairs: int
    """Pairs of instructions: four taps."""
    step: int
    """Outputs from a tile's first to the next one's."""
    blocks: int


def runs(sizes: ConvSizes, config: ConvConfig) -> Runs | None:
    """The tiles, as the launcher has them; None where it takes no runs."""
    axes = sizes.axes
    width, height = axes[0], axes[1] if sizes.spatial > 1 else None
    is_plain = all(it.stride == 1 and it.padding == 0 and it.window == 1 for it in axes)
    if not is_plain or sizes.transposed or sizes.groups > 1 or sizes.over_channels:
        return None
    if sizes.in_channels > config.chunk or sizes.rows > config.channels or sizes.taps < 2:
        return None
    positions = config.positions
    if width.size < positions // 2 or config.width < 4 * 32:
        return None
    pixels = positions + width.last_offset + (height.last_offset * width.size if height else 0)
    slice_ = width.out * (height.out if height else 1)
    sector = _SECTOR_BYTES // sizes.dtype.itemsize
    shares = slice_ % sector or _stored_plane(sizes) % sector
    outputs = positions - ceil(positions / width.size) * (width.size - width.out)
    step = (outputs - (sector if shares else 0)) // sector * sector
    if step <= 0:
        return None
    others = sizes.images * prod(it.out for it in axes[2:])
    return Runs(
        pixels=pixels, pairs=ceil(sizes.taps / 4), step=step, blocks=others * ceil(slice_ / step)
    )


def run_bytes(sizes: ConvSizes, config: ConvConfig, plan: Runs) -> int:
    """Shared memory of a tile's runs."""
    depth = sizes.axes[2].taps if sizes.spatial == 3 else 1
    return depth * plan.pixels * 2 * config.chunk * config.planes


def tile_step(sizes: ConvSizes, config: ConvConfig) -> int:
    """Positions from a tile's first to the next one's (ConvVariant::describe_runs).

    Fewer than it has where channels begin inside sectors of memory, which tiles then share.
    """
    plane = _stored_plane(sizes)
    splits = config.schedule is ConvSchedule.SHARED and config.parts == 1
    can_share = config.store is ConvStore.ROWS and not config.patches and not splits
    sector = _SECTOR_BYTES // sizes.dtype.itemsize
    are_runs = sizes.phases == 1 and not config.has_joined and plane % sector
    are_runs = are_runs and not sizes.over_channels
    shares = can_share and are_runs and plane >= 2 * config.positions
    return config.positions - (sector if shares else 0)


def conv_seconds(sizes: ConvSizes, config: ConvConfig, machine: Machine) -> float:
    """The kernel that writes the planes, and the waves of tiles after it."""
    rates = conv_rates(machine)
    sizes = seen_by(config, sizes)
    found = runs(sizes, config) if config.has_runs else None
    plan = halo(sizes, config) if config.patches and found is None else None
    step = found.step if found else tile_step(sizes, config)
    blocks = found.blocks if found else plan.blocks if plan else ceil(sizes.positions / step)
    units = blocks * ceil(sizes.rows / config.channels) * sizes.groups * sizes.phases
    main = (
        _run_cycles(sizes, config, found, rates)
        if found
        else _mainloop_cycles(sizes, config, plan, rates)
    )
    store = _store_cycles(sizes, config, plan, rates)
    if sizes.window > 1:
        # Sums of a window's results one after the other; what is left of them is stored.
        finish = _finish_cycles(config, rates)
        each = max(main, (main + finish) / 2) if _alternates(config) else main + finish
        main = sizes.window * each
    unit = max(main, (main + store) / 2) if _alternates(config) else main + store
    waves = ceil(units / machine.sm_count)
    # Nothing hides the store of a block's only tile.
    cycles = max(waves * unit, main + store)
    plane = _stored_plane(sizes) * sizes.dtype.itemsize
    rate = rates.parted_bandwidth if plane % _SECTOR_BYTES else rates.store_bandwidth
    rate = rate if step == config.positions else rates.shared_bandwidth
    floor = sizes.stored_elements * sizes.dtype.itemsize / rate
    seconds = max(cycles / rates.clock, floor)
    seconds += planes_seconds(sizes, config, machine) + machine.launches.product_seconds
    if sizes.moments is not None:
        # What the tiles have left is combined.
        seconds += machine.launches.next_seconds
    return seconds * (rates.joined_outputs if config.outputs > 1 else 1.0)


def _stored_plane(sizes: ConvSizes) -> int:
    """Results of a channel that lie side by side: what is left of windows."""
    return prod(axis.positions if axis.window > 1 else axis.out for axis in sizes.axes)


def _finish_cycles(config: ConvConfig, rates: ConvolutionRates) -> float:
    """Cycles in which a warpgroup applies a step to its sums and adds them to what is left."""
    parts = config.parts if _alternates(config) else 1
    return rates.finished * 64 * parts * config.width


def _store_cycles(
    sizes: ConvSizes, config: ConvConfig, plan: Halo | None, rates: ConvolutionRates
) -> float:
    """Cycles in which a warpgroup stores its part of a tile."""
    width = sizes.axes[0]
    parts = config.parts if _alternates(config) else 1
    program = rates.row_program * 64 * parts * config.width if sizes.has_program else 0.0
    if sizes.over_channels and not sizes.keeps_channels:
        # A step for each element, few stores.
        return _finish_cycles(config, rates) + program
    has_phases = any(axis.joined for axis in sizes.axes)
    each = rates.joined_moments if has_phases else rates.moments
    moments = 0.0 if sizes.moments is None else each * 64 * parts * config.width
    if sizes.moments is TileMoments.ALONE:
        return _finish_cycles(config, rates) + moments
    joined = width.stride if width.joined else width.outputs
    if joined > 1:
        # Pairs of a phase each leave together where they are aligned.
        cost = rates.pairs if joined == 2 and width.out % 2 == 0 else rates.phases
    elif sizes.transposed and sizes.window == 1:
        cost = rates.scattered
    elif config.has_runs:
        cost = rates.runs_of_pixels
    elif tile_step(sizes, config) < config.positions:
        cost = rates.shared[config.width]
    elif config.store is ConvStore.ROWS:
        cost = rates.rows
    elif plan is not None or _stored_plane(sizes) % 4:
        cost = rates.unaligned
    else:
        cost = rates.runs
    elements = 64 * parts * config.width
    stored = min(sizes.rows, 64 * parts) * config.width
    # Warps without a channel wait for those that have one; the rates are of full tiles.
    fullest = min(sizes.rows, _WARP_ROWS) / _WARP_ROWS * elements
    idle = max(fullest - stored, 0) * sizes.operation * rates.operation
    return elements * cost.waiting + stored * cost.moving + idle + program + moments


def _alternates(config: ConvConfig) -> bool:
    return config.schedule is ConvSchedule.ALTERNATE


def _mainloop_cycles(
    sizes: ConvSizes, config: ConvConfig, plan: Halo | None, rates: ConvolutionRates
) -> float:
    """Cycles of the sums of one tile: products, or the copies of what they read."""
    loop = mainloop(sizes, config)
    # A phase has not always the most taps.
    taps = loop.taps
    if sizes.transposed:
        taps = ceil(prod(axis.mean_taps for axis in sizes.axes))
    chunk = whole_chunk(config)
    k_steps = taps * loop.chunks * config.chunk // 16
    multiplied = {1: 1, 2: 3}[config.planes]
    tile = config.channels / 64 * config.positions / 256
    products = k_steps * 128 * tile * multiplied * rates.product_share
    stages = ceil(taps * loop.chunks * chunk / _STAGE_K)
    filters = stages * config.channels * _STAGE_K * 2 * config.planes
    if plan is None:
        rows = stages * (_STAGE_K // chunk) * config.positions * config.planes
        copied = rows * rates.row_cycles[config.planes, chunk]
        if sizes.spatial == 3:
            copied *= rates.deep_rows
        elif config.row_taps is RowTaps.OVERLAPPING and config.outputs == sizes.window == 1:
            copied *= rates.overlapping_rows
        if sizes.window > 1 and chunk < _STAGE_K:
            copied *= 1 if sizes.transposed else rates.window_rows
            copied += rows / min(config.positions, _MOST_BOX) * rates.window_copy
        return float(max(products, copied + filters / rates.copy_bytes))
    patch = plan.pitch * plan.patch_rows * _chunk_bytes(config)
    depth = sizes.axes[2].most_taps if sizes.spatial == 3 else 1
    moved = depth * loop.chunks * patch + filters
    return float(max(products * rates.patch_products, moved / rates.copy_bytes))


def _run_cycles(sizes: ConvSizes, config: ConvConfig, plan: Runs, rates: ConvolutionRates) -> float:
    """Cycles of a tile whose pixels come as runs, and whose filter stays."""
    multiplied = {1: 1, 2: 3}[config.planes]
    tile = config.channels / 64 * config.positions / 256
    products = 2 * plan.pairs * 128 * tile * multiplied * rates.product_share
    return float(max(products, run_bytes(sizes, config, plan) / rates.copy_bytes))


def planes_seconds(sizes: ConvSizes, config: ConvConfig, machine: Machine) -> float:
    """The kernel before, which turns the input and rounds it. `sizes`: as the configuration sees
    them."""
    rates = conv_rates(machine)
    pads, folds = sizes.groups > 1, config.row_taps is RowTaps.FOLDED
    channels = (channel_pitch(sizes.in_channels) if pads else sizes.in_channels) * sizes.groups
    channels *= sizes.axes[0].taps if folds else 1
    width = _plane_width(sizes, config)
    elsewhere = prod(axis.size for axis in sizes.axes[1:])
    written = sizes.images * elsewhere * width * channel_pitch(channels) * 2 * config.planes
    moved = written + sizes.input_elements * sizes.dtype.itemsize
    tile = 8 if config.row_taps is RowTaps.OVERLAPPING else whole_chunk(config)
    turned = sizes.images * elsewhere * width * ceil(channels / tile) * tile
    is_plain = width == sizes.axes[0].size
    rate = rates.turned_elements if is_plain else rates.found_elements
    rate = rates.folded_elements if folds else rate
    seconds = max(moved / rates.plane_bandwidth, turned / rate)
    return max(seconds, _filter_seconds(sizes, config, machine)) + machine.launches.next_seconds


def _plane_width(sizes: ConvSizes, config: ConvConfig) -> int:
    """Pixels of a row of the planes (ConvVariant::plane_width)."""
    axis = sizes.axes[0]
    if config.row_taps is RowTaps.FOLDED:
        return axis.positions
    if config.row_taps is RowTaps.APART:
        return axis.size
    window = row_window(sizes, config)
    used = (axis.positions - 1) * axis.stride + ceil(axis.taps / window) * window
    return max(used, axis.size + 2 * axis.padding)


def _filter_seconds(sizes: ConvSizes, config: ConvConfig, machine: Machine) -> float:
    """Its first blocks, which write the filter meanwhile: an output channel each at a time."""
    loop = mainloop(sizes, config)
    phases = (
        sizes.phases
        if sizes.window == 1
        else prod(axis.stride for axis in sizes.axes if axis.transposed)
    )
    pairs = phases * sizes.joined * loop.taps * loop.chunks * whole_chunk(config) // 2
    batches = ceil(sizes.in_channels * sizes.taps / _BATCH) + ceil(pairs / _BATCH)
    turns = ceil(sizes.out_channels * sizes.groups / (2 * machine.sm_count))
    return turns * batches * conv_rates(machine).filter_seconds
