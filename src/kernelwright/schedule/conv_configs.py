"""Configurations of convolutions: enumerate, filter with reasons, rank by the machine model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import ceil, prod

from kernelwright.ir.conv_configs import (
    ConvConfig,
    ConvSchedule,
    ConvStore,
    DirectConfig,
    RowTaps,
)
from kernelwright.machine import Machine
from kernelwright.schedule.conv_direct import direct_config, direct_seconds
from kernelwright.schedule.conv_model import (
    channel_pitch,
    conv_seconds,
    halo,
    run_bytes,
    runs,
    seen_by,
    tile_step,
)
from kernelwright.schedule.conv_shape import FILTER_RUN, MOST_PHASES, ConvSizes

_CHUNKS = (16, 32, 48, 64)
COUNTED = 1 << 30
"""Positions and units that the launcher counts."""
COUNTED_CHANNELS = 1 << 20
_MOST_STAGES = 8
_MOST_TILE_CHANNELS = 128
_FOLDED_PHASES = (1, 2, 4, 8)
"""Joined phases of a position that have totals of channels (conv_rows.cuh)."""
_MOST_REDUCED = {1: 128, 2: 64}
"""Positions of a warpgroup that keeps what is left of a window beside its sums, by planes."""
_FEW_TILES = 512
"""Tiles of 64 channels by 128 positions."""
_OUTPUTS = (2, 4, 8)
"""Neighbouring outputs that are joined where channels are few."""
_FEW_CHANNELS = 32
_MOST_REACH = 1 << 16
"""Elements from an output's first tap to its last one (ConvVariant::can_join_outputs)."""
_ALIGNMENT = 1024
_LINE_BYTES = 16 * 40 * 4
"""Shared memory of a warp that stores: 32 positions of 16 channels."""
PATCHES: dict[tuple[int, int], tuple[tuple[ConvSchedule, int, int, int], ...]] = {
    (1, 64): ((ConvSchedule.ALTERNATE, 256, 2, 66560), (ConvSchedule.ALTERNATE, 256, 3, 49152)),
    (1, 32): ((ConvSchedule.ALTERNATE, 256, 2, 66560),),
    (2, 64): ((ConvSchedule.SHARED, 256, 2, 57344), (ConvSchedule.ALTERNATE, 128, 3, 40960)),
    (2, 32): ((ConvSchedule.SHARED, 256, 3, 32768), (ConvSchedule.ALTERNATE, 128, 4, 20480)),
}
"""Schedule, positions of a warpgroup, patches and bytes of one, by 64 output channels and by the
channels of a copy: of 16, patches took twice as long as copies."""


@lru_cache(maxsize=512)
def ranked_convolutions(
    sizes: ConvSizes, planes: int, machine: Machine
) -> tuple[tuple[float, ConvConfig | DirectConfig], ...]:
    """Configurations with their modelled seconds, best first; none on cards without the kernel.

    `planes`: 1 for one fp16 product, 2 for what is as accurate as float32.
    """
    if machine.convolutions is None or not _can_count(sizes):
        return ()
    candidates = _candidates(sizes, planes, machine.shared_memory_per_block)
    found = [it for it in candidates if why_illegal(sizes, it, machine) is None]
    timed: list[tuple[float, ConvConfig | DirectConfig]] = [
        (conv_seconds(sizes, config, machine), config) for config in found
    ]
    is_reduced = sizes.window > 1 or sizes.over_channels
    direct = direct_config(sizes) if planes == 2 and not is_reduced else None
    if direct is not None:
        timed.append((direct_seconds(sizes, direct, machine), direct))
    return tuple(sorted(timed, key=lambda entry: entry[0]))


def general_config(sizes: ConvSizes, planes: int) -> ConvConfig:
    """What takes other sizes, too: every tap is a copy."""
    width = 128 if planes == 2 else 256
    if sizes.window > 1:
        width = _MOST_REDUCED[planes]
    joined = 1 if 1 in _joins(sizes) else 0
    if sizes.has_program and sizes.with_joined(joined).rows > _MOST_TILE_CHANNELS:
        joined = 0
    # All channels are in a tile where they are reduced.
    is_wide = sizes.over_channels and sizes.with_joined(joined).rows > 64
    return ConvConfig(
        spatial=sizes.spatial,
        chunk=_chunk_for(sizes.in_channels, planes),
        planes=planes,
        parts=2 if is_wide else 1,
        width=min(width, 128) if is_wide else width,
        schedule=ConvSchedule.SHARED if is_wide else ConvSchedule.ALTERNATE,
        stages=3 if is_wide else 4,
        joined=joined,
        fold_phases=_fold_phases(sizes.with_joined(joined)),
    )


def _fold_phases(sizes: ConvSizes) -> int:
    return sizes.joined if sizes.has_program else 0


def why_not_reduced(sizes: ConvSizes) -> str | None:
    """Why no tile reduces results as these sizes say, or None (ConvVariant::admits)."""
    for axis in sizes.axes:
        if axis.window > MOST_PHASES:
            return "the windows are larger than a position has phases"
        if axis.transposed and sizes.window > 1 and axis.window % axis.stride:
            return "the windows are no whole number of phases"
    if sizes.over_channels and (sizes.groups > 1 or sizes.out_channels > _MOST_TILE_CHANNELS):
        return "no tile has all channels"
    return None


def why_illegal(sizes: ConvSizes, config: ConvConfig, machine: Machine) -> str | None:
    """What the configuration asks too much of, or None."""
    if shared_bytes(config) > machine.shared_memory_per_block:
        return "too much shared memory"
    if sizes.over_channels and sizes.with_joined(config.joined).rows > config.channels:
        return "a tile has not all channels"
    reason = why_not_reduced(sizes)
    if reason is not None:
        return reason
    sizes = seen_by(config, sizes)
    if config.has_runs:
        plan = runs(sizes, config)
        fits = plan is not None and (
            run_bytes(sizes, config, plan) <= config.patch_bytes and plan.pairs <= 2 * config.stages
        )
        return None if fits else "no runs of pixels hold what the taps meet"
    if config.patches:
        return None if halo(sizes, config) is not None else "no patch holds what the taps meet"
    # A row whose taps are channels is as long as the planes say.
    axes = sizes.axes if config.row_taps is RowTaps.APART else sizes.axes[1:]
    fits = all(axis.fits_copies(sizes.spatial) for axis in axes)
    return None if fits else "the copies' offsets have too few bits"


def shared_bytes(config: ConvConfig) -> int:
    """Shared memory of a block (conv_tile.cuh)."""
    pixels = 0 if config.patches else config.positions * 128
    stage = config.planes * (config.channels * 128 + pixels)
    places = 2 * config.width * 8
    patches = config.patches * (config.patch_bytes + 16)
    rows = 4 * (config.width + 8) * 4
    if config.has_runs:
        rows = 8 * (config.width + 20) * 4 + config.width * 4
    stored = 8 * (rows if config.store is ConvStore.ROWS else _LINE_BYTES)
    together = config.schedule is ConvSchedule.SHARED and config.parts == 2
    stored += (9 if together else 10) * config.fold_phases * (config.width + 8) * 4
    return _ALIGNMENT + stored + config.stages * (stage + 16) + places + patches


def _can_count(sizes: ConvSizes) -> bool:
    """Whether the launcher's counters hold the call."""
    elements = sizes.images * prod(axis.size for axis in sizes.axes)
    units = sizes.positions / 128 * sizes.groups * sizes.phases * (sizes.out_channels / 64 + 1)
    channels = max(sizes.in_channels, sizes.out_channels) * sizes.groups
    phases = max(axis.phases for axis in sizes.axes)
    counts = max(sizes.positions, 16 * elements, 2 * units) < COUNTED
    return counts and channels <= COUNTED_CHANNELS and phases <= MOST_PHASES


def _candidates(sizes: ConvSizes, planes: int, shared: int) -> Iterator[ConvConfig]:
    """What may be fast; `shared`: bytes of shared memory of a block."""
    yield from _with_runs(sizes, planes)
    forms = [(joined, 1) for joined in _joins(sizes)]
    for joined, outputs in (*forms, *((0, count) for count in _outputs(sizes))):
        seen = sizes.with_joined(joined).with_outputs(outputs)
        for apart in (*_with_copies(seen, planes), *_with_patches(seen, planes)):
            config = replace(apart, joined=joined, outputs=outputs, fold_phases=_fold_phases(seen))
            config = replace(config, store=_store(seen, config))
            more = (replace(config, stages=stages) for stages in range(_MOST_STAGES, 1, -1))
            yield next((it for it in more if shared_bytes(it) <= shared), config)


def _store(sizes: ConvSizes, config: ConvConfig) -> ConvStore:
    """Rows wherever they were timed and at least as fast, and where only they share sectors."""
    timed = config.planes == 1 and (config.width == 256 or config.patches)
    rows = replace(config, store=ConvStore.ROWS)
    shares = config.width >= 128 and tile_step(sizes, rows) < config.positions
    return ConvStore.ROWS if (timed or shares) and not config.has_joined else ConvStore.LINES


def _joins(sizes: ConvSizes) -> tuple[int, ...]:
    """Dimensions whose phases may be joined, W first."""
    is_reduced = sizes.window > 1 or (sizes.over_channels and not sizes.has_program)
    most = sizes.spatial if sizes.transposed and not is_reduced else 0
    counts = _FOLDED_PHASES if sizes.has_program else range(1, FILTER_RUN + 1)
    return tuple(n for n in range(most + 1) if sizes.with_joined(n).joined in counts)


def _outputs(sizes: ConvSizes) -> tuple[int, ...]:
    """Neighbouring outputs along W that may be joined, so that their channels fill a tile."""
    width = sizes.axes[0]
    is_reduced = sizes.window > 1 or sizes.over_channels
    if sizes.transposed or is_reduced or sizes.out_channels > _FEW_CHANNELS:
        return ()
    if sizes.reads_by_place:
        return ()
    reach = (width.taps - 1) * width.dilation
    if reach >= _MOST_REACH or reach * sizes.in_channels * sizes.groups >= _MOST_REACH**2 // 8:
        return ()
    counts = (it for it in _OUTPUTS if it <= width.out)
    return tuple(it for it in counts if sizes.with_outputs(it).rows <= _MOST_TILE_CHANNELS)


def _with_copies(sizes: ConvSizes, planes: int) -> Iterator[ConvConfig]:
    wide = 2 if sizes.rows > 64 and planes == 1 else 1
    tiles: tuple[tuple[int, ConvSchedule, int], ...] = {
        (2, 1): ((1, ConvSchedule.ALTERNATE, 128), (1, ConvSchedule.SHARED, 128)),
        (1, 2): ((2, ConvSchedule.SHARED, 256), (2, ConvSchedule.ALTERNATE, 128)),
        (1, 1): ((1, ConvSchedule.ALTERNATE, 256),),
    }[planes, wide]
    if sizes.window > 1:
        most = _MOST_REDUCED[planes]
        tiles = ((1, ConvSchedule.ALTERNATE, most), (1, ConvSchedule.SHARED, most))
        if sizes.rows > 64:
            tiles += ((2, ConvSchedule.SHARED, most),)
            tiles += ((2, ConvSchedule.ALTERNATE, most // 2),) if planes == 1 else ()
    elif sizes.over_channels and sizes.rows > 64 and planes == 2:
        tiles = ((2, ConvSchedule.SHARED, 128),)
    elif sizes.over_channels and sizes.rows > 128:
        tiles = ((4, ConvSchedule.ALTERNATE, 64),)
    elif _fills_few(sizes):
        tiles += ((1, ConvSchedule.ALTERNATE, 64), (1, ConvSchedule.ALTERNATE, 128))[: 3 - planes]
    for row_taps, chunk in _row_taps(sizes, planes):
        for parts, schedule, width in tiles:
            yield ConvConfig(
                spatial=sizes.spatial,
                chunk=chunk,
                planes=planes,
                parts=parts,
                width=width,
                schedule=schedule,
                stages=2,
                row_taps=row_taps,
            )


def _fills_few(sizes: ConvSizes) -> bool:
    """Whether the usual tiles leave multiprocessors without work, so that smaller ones may gain."""
    tiles = ceil(sizes.positions / 128) * ceil(sizes.rows / 64) * sizes.groups * sizes.phases
    return tiles < _FEW_TILES


def _row_taps(sizes: ConvSizes, planes: int) -> Iterator[tuple[RowTaps, int]]:
    """Ways to bring the taps of a row, and channels of a copy."""
    channels, taps = sizes.in_channels, sizes.axes[0].taps
    yield RowTaps.APART, _chunk_for(channels, planes)
    if sizes.groups > 1 or sizes.transposed or taps == 1:
        return
    pitch = channel_pitch(channels)
    if pitch <= 32 and sizes.axes[0].dilation == 1:
        yield RowTaps.OVERLAPPING, _chunk_for(min(taps, 64 // pitch) * pitch, planes)
    if channels < 16:
        yield RowTaps.FOLDED, _chunk_for(taps * channels, planes)


def _chunk_for(channels: int, planes: int) -> int:
    chunk = min((it for it in _CHUNKS if it >= channels), default=64)
    return 64 if chunk == 48 and planes == 2 else chunk


def _with_patches(sizes: ConvSizes, planes: int) -> Iterator[ConvConfig]:
    if planes == 2 or sizes.spatial == 1 or sizes.taps == 1 or sizes.window > 1:
        return
    if sizes.axes[0].outputs > 1:
        return
    parts, chunk = 2 if sizes.rows > 64 else 1, _chunk_for(sizes.in_channels, 1)
    for schedule, width, patches, size in PATCHES.get((parts, 64 if chunk == 48 else chunk), ()):
        yield ConvConfig(
            spatial=sizes.spatial,
            chunk=chunk,
            planes=1,
            parts=parts,
            width=width,
            schedule=schedule,
            stages=2,
            patches=patches,
            patch_bytes=size,
        )


def _with_runs(sizes: ConvSizes, planes: int) -> Iterator[ConvConfig]:
    """The filter stays in shared memory, so that its stages are as many as it has."""
    parts = 2 if sizes.rows > 64 else 1
    if sizes.in_channels > 8 or parts * planes > 2:
        return
    for width in (128, 256)[: 3 - parts * planes]:
        config = ConvConfig(
            spatial=sizes.spatial,
            chunk=8,
            planes=planes,
            parts=parts,
            width=width,
            schedule=ConvSchedule.ALTERNATE,
            stages=ceil(sizes.taps / 8),
            patches=2,
            store=ConvStore.ROWS,
        )
        plan = runs(sizes, config)
        if plan is None:
            continue
        whole = _ALIGNMENT * planes
        room = ceil(run_bytes(sizes, config, plan) / whole) * whole
        yield from (replace(config, patch_bytes=room, patches=it) for it in (4, 2))
