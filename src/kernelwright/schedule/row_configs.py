"""Configurations of the row family, best first by what was measured and what fits."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.row_configs import (
    BlockRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.types import ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.column_configs import column_configs
from kernelwright.schedule.held_configs import held_configs
from kernelwright.schedule.row_shape import RowShape, row_shape

_WHOLE = BlockRows(threads=256, width=1, vectors=4, holds=False, resident=4)
"""The block that reads a whole long row of which nothing is wanted twice."""
_Tuned = RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows
_EDGE_VECTORS = 13
_EDGE_THREADS = range(512, 641)
"""Threads of a block whose rows begin between two vectors, and how many of them a thread holds."""
_MOST_BLOCKS = 8
"""Blocks of a cluster with which rows whose lines end within vectors are read twice no slower."""
_FEW_VECTORS = 8
"""Vectors of a thread of a cluster with which it waits for exchanges more than it computes."""


def row_configs(
    program: RowProgram, inputs: Sequence[ValueType], machine: Machine
) -> tuple[RowConfig, ...]:
    """What the tuner tries for a row program, in this order; at least one."""
    rows = row_shape(program, inputs, machine)
    tuned: list[_Tuned] = []
    if rows.length > 1 and rows.count > 0 and rows.inputs:
        tuned += _along(rows, machine) if rows.is_along else column_configs(rows, machine)
    return (
        *(
            RowConfig(
                multiprocessors=machine.sm_count,
                tuned=each,
                streams=_streams(rows, each, machine),
            )
            for each in tuned
        ),
        RowConfig(multiprocessors=machine.sm_count),
    )


def _streams(rows: RowShape, tuned: _Tuned, machine: Machine) -> bool:
    """Whether inputs push each other out of the L2 cache, and not what else is there: more than it
    holds, of which nothing is read twice. Of much more, that is too little to show."""
    gains = isinstance(tuned, ColumnRows | PartRows | BlockRows) or (
        # No faster where a warp has a row or several.
        isinstance(tuned, ShortRows) and tuned.lanes > machine.limits.warp_threads
    )
    is_read_once = rows.levels == 1 and not rows.results
    held = rows.count * rows.row_bytes / machine.l2_bytes
    return gains and tuned.width > 1 and is_read_once and 1 < held < _MOST_STREAMED


_MOST_STREAMED = 8
"""Times what the L2 cache holds."""


# --- Neighbours in memory belong to one row ----------------------------------------------------


def _along(
    rows: RowShape, machine: Machine
) -> list[RingRows | PartRows | GridRows | ShortRows | BlockRows]:
    if rows.runs == 1 and (held := held_configs(rows, machine)):
        return [*held, *_rings(rows, machine)[:4]]
    parts = [
        PartRows(threads=threads, width=rows.width, unroll=unroll, resident=resident)
        for threads, unroll, resident in _parts(rows)
    ]
    rings = _rings(rows, machine)[:12] if rows.runs == 1 else []
    if not rings:
        blocks = _blocks(rows, machine) if rows.runs > 1 else []
        # A block for a row of few bytes is idle: the general kernel puts many rows on one.
        if rows.row_bytes < machine.rows.block_bytes:
            return [*blocks]
        return [*blocks, *_grid(rows, machine), *parts]
    if rows.line % rows.width != 0 and rings[0].cluster > _MOST_BLOCKS:
        # To find what differs along a row takes time, in which many threads hide their waiting.
        parts.sort(key=lambda part: part.threads * part.resident, reverse=True)
        # Functions would be computed again with what is read again.
        small = [ring for ring in rings if ring.cluster <= _MOST_BLOCKS and rows.functions > 0]
        return [*small, *parts[:2], *(ring for ring in rings if ring not in small)]
    # Few rows, and a card that would be idle.
    busy = min(rows.count, machine.sm_count) * rings[0].cluster
    if busy < machine.sm_count and rows.row_bytes > machine.rows.few_row_bytes:
        return [*parts[:2], *rings]
    if rows.levels == 1 and not rows.results:
        # Nothing of a row is wanted twice.
        if rows.count >= machine.rows.many_rows:
            return [*_pieces(rows, machine), *rings[:8], parts[0]]
        if rows.row_bytes > machine.rows.few_row_bytes:
            own = PartRows(threads=256, width=rows.width, unroll=4, resident=5)
            return [*_whole_rows(rows, machine), own, *parts[:2], *rings[:8]]
    return [*rings, parts[0]]


def _whole_rows(rows: RowShape, machine: Machine) -> Iterator[BlockRows]:
    """A block for each long row, where nine of ten places for blocks are taken to the end."""
    places = machine.sm_count * _WHOLE.resident
    is_filled = 10 * rows.count >= 9 * places * -(-rows.count // places)
    if rows.length % rows.width == 0 and rows.functions == 0 and is_filled:
        yield replace(_WHOLE, width=rows.width)


def _parts(rows: RowShape) -> list[tuple[int, int, int]]:
    """Threads of a block, accesses in flight, blocks of a multiprocessor."""
    # What takes longer to compute than to read wants more threads with less in flight.
    choices = [(512, 2, 3), (512, 4, 2), (256, 4, 4), (512, 8, 1), (512, 2, 2)]
    if rows.functions <= 1:
        choices = [*choices[1:3], choices[0], *choices[3:]]
    if rows.runs == 1:
        return choices
    # A block has no more than one run, of which each of its threads has all accesses in flight.
    vectors = rows.inner // rows.width
    if vectors % (128 * 8) == 0:
        choices = [(128, 8, 4), *choices]
    fitting = [it for it in (*choices, (128, 4, 8), (64, 4, 16)) if it[0] * it[1] <= vectors]
    return list(dict.fromkeys([*fitting, *choices]))[: len(choices)]


def _grid(rows: RowShape, machine: Machine) -> Iterator[GridRows]:
    """For many rows that not even a cluster holds, but all blocks together."""
    ring = machine.shared_memory_per_block - machine.rows.grid_bytes
    vector = rows.width * sum(rows.inputs)
    is_wanted = (
        machine.has_clusters
        and rows.runs == rows.levels == 1
        and bool(rows.results)
        # What differs along a row is read again for each, from the cache: as slow as memory.
        and rows.differ == 0
        and rows.length % rows.width == 0
        and all(rows.width * size % rows.access_bytes == 0 for size in rows.inputs)
        and rows.row_bytes * machine.rows.grid_room <= ring * machine.sm_count
        and rows.count >= machine.rows.grid_rows
        # Of fewer bytes many are still in the cache when parts of rows are read again.
        and rows.count * rows.row_bytes > 2 * machine.l2_bytes
    )
    # Where less than a second row fits, totals have to be there soon after a row's last chunk.
    choices = [(8, 4), (12, 2)]
    if 2 * rows.row_bytes > ring * machine.sm_count:
        choices.reverse()
    for fold_warps, accesses in choices:
        vectors = accesses * rows.access_bytes // vector
        if is_wanted and vectors > 0:
            yield GridRows(
                fold_warps=fold_warps,
                finish_warps=8,
                width=rows.width,
                vectors=vectors,
                ring=ring,
            )


def _pieces(rows: RowShape, machine: Machine) -> Iterator[PartRows]:
    """Rows in one piece, each for a block of few threads: nothing of them is wanted twice."""
    for threads, unroll, resident in ((32, 4, 32), (64, 4, 16), (64, 8, 8)):
        registers = unroll * rows.width * sum(rows.inputs) // 4
        fits = registers <= machine.rows.held_registers // 2
        if rows.length >= threads * unroll * rows.width and fits:
            yield PartRows(threads=threads, width=rows.width, unroll=unroll, resident=resident)


def _blocks(rows: RowShape, machine: Machine) -> list[BlockRows]:
    """A block for each row: held in registers, or read again from the cache."""
    width = rows.width
    warp, most_threads = machine.limits.warp_threads, machine.limits.block_threads
    rates = machine.rows
    while rows.inner % width != 0:
        width //= 2
    vectors = rows.length // width
    if vectors < 2 * warp:
        return []
    registers = max(1, width * sum(rows.inputs) // 4)
    # As many threads as fill the card: more for each of a few rows.
    filling = max(machine.sm_count * rates.busy_threads // rows.count, 2 * warp)
    filling = min(filling, rates.holding_threads)
    held: list[BlockRows] = []
    for own in (32, 24, 16, 8, 4, 2, 1) if width == 1 else (8, 4, 2, 1):
        threads = max(2 * warp, -(-vectors // (own * warp)) * warp)
        room = rates.held_registers // (2 if 2 * threads <= most_threads else 4)
        is_filled = vectors * 4 > threads * own
        if threads <= most_threads and own * registers <= room and is_filled:
            held.append(_block(threads, width, own, registers, machine, holds=True))
    held.sort(key=lambda block: max(block.threads / filling, filling / block.threads))
    is_in_cache = rows.row_bytes <= rates.cached_row_bytes and 2 * rows.count >= machine.sm_count
    if not is_in_cache and rows.row_bytes > rates.lone_row_bytes:
        return held
    own = max(1, rates.held_registers // 4 // registers)
    read = [
        _block(threads, width, own, registers, machine, holds=False) for threads in (512, 1024, 256)
    ]
    return [*held, *(block for block in read if vectors * 4 > block.threads * own)]


def _block(
    threads: int, width: int, vectors: int, registers: int, machine: Machine, *, holds: bool
) -> BlockRows:
    """`registers`: of a thread for a vector."""
    besides = machine.rows.least_registers // 4 * 3
    # What is read element by element has one place, not one for each of a vector's.
    besides = besides // 2 if width == registers == 1 else besides
    each = threads * (besides + vectors * registers)
    fitting = min(machine.registers_per_sm // each, machine.limits.sm_threads // threads)
    return BlockRows(
        threads=threads,
        width=width,
        vectors=vectors,
        holds=holds,
        resident=max(1, min(fitting, machine.rows.resident_blocks)),
    )


def _rings(rows: RowShape, machine: Machine) -> list[RingRows]:
    """Teams that hold a row: few threads with many vectors each come first.

    What a team does once for each row, whatever its length, takes as long as some ten vectors.
    """
    vectors = -(-rows.length // rows.width) + (rows.length % rows.width != 0)
    most_threads = machine.limits.block_threads
    if vectors < machine.limits.warp_threads // 4:
        return []
    found: list[RingRows] = []
    for most in (*_of_lone_rows(rows, vectors, machine), 12, 24, 8, 16, 5):
        team = _power_of_two(-(-vectors // most), machine)
        cluster = max(1, team // most_threads)
        threads = min(team, most_threads)
        # Large blocks are alone on a multiprocessor: what else could run hides their waiting, too.
        for stages in (1, 2) if threads >= most_threads // 2 else (2, 1):
            found += _ring(rows, vectors, threads, cluster, stages, machine)
            if threads >= most_threads // 2:
                found += _ring(rows, vectors, threads // 2, cluster * 2, stages, machine)
    # A cluster with few vectors a thread waits for its exchange more than it computes.
    found.sort(key=lambda ring: ring.cluster > 1 and ring.vectors <= _FEW_VECTORS)
    # Of few rows that end between vectors, smaller blocks work beside others that wait.
    if rows.length % rows.width != 0 and rows.count < machine.rows.many_rows:
        found.sort(key=lambda ring: ring.cluster > 1 and ring.threads == most_threads)
    rings = list(dict.fromkeys(found))
    held = [_held(ring) for ring in rings if _is_held(rows, ring, machine)]
    return [*_held_with_edges(rows, rings, machine), *held, *rings]


def _of_lone_rows(rows: RowShape, vectors: int, machine: Machine) -> tuple[int, ...]:
    """Vectors of a thread where each row may have a multiprocessor to itself: one, since the time
    of a row is what each of its vectors waits for memory, one after the other."""
    is_lone = rows.count <= machine.sm_count and vectors <= machine.rows.holding_threads
    return (1, 2) if is_lone else ()


def _held_with_edges(rows: RowShape, rings: list[RingRows], machine: Machine) -> list[HeldRows]:
    """Where rows begin between two vectors, what to do with the edges takes registers: a team that
    has rows of its size all the same, of blocks that are no power of two."""
    vectors = -(-rows.length // rows.width) + 1
    warp = machine.limits.warp_threads
    threads = -(-vectors // (2 * _EDGE_VECTORS * warp)) * warp
    is_wanted = (
        rows.length % rows.width != 0
        # What differs along a row is found by a way that rows with edges do not have.
        and rows.others == 0
        and threads in _EDGE_THREADS
        and bool(rows.results)
        and rows.functions == 0
        and rows.width * sum(rows.inputs) == rows.access_bytes
        and any(ring.cluster == 2 for ring in rings)
    )
    ring = RingRows(
        threads=threads,
        team=threads,
        cluster=2,
        width=rows.width,
        vectors=_EDGE_VECTORS,
        stages=1,
        resident=1,
    )
    return [_held(ring)] if is_wanted else []


def _is_held(rows: RowShape, ring: RingRows, machine: Machine) -> bool:
    """Whether registers have room for a row, and the time of an exchange between blocks is worth
    it."""
    registers = ring.vectors * ring.width * sum(rows.inputs) // 4
    return (
        ring.cluster > 1
        and ring.stages == ring.resident == 1
        and ring.threads <= machine.rows.holding_threads
        and registers <= machine.rows.held_registers
        and rows.length % rows.width == 0
        and rows.line % rows.width == 0
        and bool(rows.results)
    )


def _held(ring: RingRows) -> HeldRows:
    return HeldRows(**{field.name: getattr(ring, field.name) for field in fields(ring)})


def _ring(
    rows: RowShape, vectors: int, team: int, cluster: int, stages: int, machine: Machine
) -> list[RingRows]:
    """The ring of such teams, if it fits."""
    own = -(-vectors // (team * cluster))
    # Four warps that have rows of their own are a block.
    warp = machine.limits.warp_threads
    threads = 4 * warp if team == warp else team
    ring = stages * threads * own * rows.width * sum(rows.inputs)
    rates = machine.rows
    room = machine.shared_memory_per_block - rates.exchange_bytes
    by_registers = machine.registers_per_sm // (rates.least_registers * threads)
    resident = min(room // ring, by_registers, rates.resident_blocks)
    if resident < 1 or cluster > machine.limits.cluster_blocks:
        return []
    return [
        RingRows(
            threads=threads,
            team=team,
            cluster=cluster,
            width=rows.width,
            vectors=own,
            stages=stages,
            resident=resident,
        )
    ]


def _power_of_two(least: int, machine: Machine) -> int:
    """The next power of two, at least a warp."""
    return max(machine.limits.warp_threads, 1 << (least - 1).bit_length())
