"""Configurations of rows side by side: neighbours in memory belong to different rows."""

from collections.abc import Iterator
from itertools import product

from kernelwright.ir.row_configs import ColumnPartRows, ColumnRows
from kernelwright.machine import Machine
from kernelwright.schedule.row_shape import RowShape

_JOINED_THREADS = 256
_LINE_LANES = 8
"""Threads that read a line of memory, 16 bytes each."""
_WARP = 32
"""Rows of a block at most: a thread of a warp has each in the end."""
_JOINED_FLIGHT = 64
"""Most elements of a thread in flight."""


def column_configs(rows: RowShape, machine: Machine) -> list[ColumnRows]:
    """Rows whose neighbours in memory belong to other rows, best first."""
    width = rows.width
    while rows.inner % width != 0:
        width //= 2
    held = list(_held_columns(rows, width, machine)) if rows.results or rows.levels > 1 else []
    read = list(_read_columns(rows, width, machine))
    # The kernels that read rows leave few and long ones to others.
    tiles = -(-rows.count // (read[0].lanes * read[0].width))
    are_few = 2 * tiles < machine.sm_count
    if are_few and rows.length > 4 * read[0].split * read[0].vectors:
        parts = [_column_parts(rows, width)]
        if rows.results and rows.count * rows.row_bytes <= machine.l2_bytes:
            parts.insert(0, _joined_parts(rows, width, machine))
        return [*parts, *held[:8], *read]
    return [*held[:8], *read]


def _column_parts(rows: RowShape, width: int) -> ColumnPartRows:
    """For rows that are few and long; a thread has some sixteen elements in flight.

    Lanes that no rows are left for stand at other places of those there are.
    """
    wide = min(width, 2, max(1, 8 // rows.folds))
    lanes = min(128, max(16, 1 << (-(-rows.count // wide) - 1).bit_length()))
    return ColumnPartRows(
        lanes=lanes, split=256 // lanes, width=wide, vectors=16 // wide, holds=False, resident=4
    )


def _joined_parts(rows: RowShape, width: int, machine: Machine) -> ColumnPartRows:
    """For rows of which the L2 cache has all, and elements have results: the blocks are as wide as
    a line of memory, and a part for each multiprocessor is one step of theirs, up to what a thread
    has in flight."""
    wide = min(width, max(1, 8 // rows.folds))
    lanes = min(_LINE_LANES, _WARP // wide, 1 << (-(-rows.count // wide) - 1).bit_length())
    split = _JOINED_THREADS // lanes
    tiles = -(-rows.count // (lanes * wide))
    each = -(-rows.length * tiles // (split * machine.sm_count))
    most = max(1, _JOINED_FLIGHT // (wide * max(1, len(rows.inputs))))
    vectors = min(1 << (each - 1).bit_length(), 1 << (most.bit_length() - 1))
    return ColumnPartRows(
        lanes=lanes,
        split=split,
        width=wide,
        vectors=vectors,
        holds=False,
        resident=2,
        joined=True,
    )


def _held_columns(rows: RowShape, width: int, machine: Machine) -> Iterator[ColumnRows]:
    """With all elements of the rows in registers: as many bytes of them as a thread has room."""
    for wide, split in product(sorted({width, max(1, width // 2)}, reverse=True), (8, 16, 4, 2)):
        vectors = _at_least(-(-rows.length // split))
        registers = vectors * wide * sum(rows.inputs) // 4
        if registers > machine.rows.held_registers or vectors * split > 4 * rows.length:
            continue
        states = wide * rows.folds * 3
        for lanes in (32, 64):
            threads = lanes * split
            if threads <= machine.rows.holding_threads and wide * rows.folds <= 8:
                wanted = machine.rows.column_registers + registers + states
                by_registers = machine.registers_per_sm // (threads * wanted)
                resident = max(1, min(by_registers, machine.limits.sm_threads // threads))
                yield ColumnRows(
                    lanes=lanes,
                    split=split,
                    width=wide,
                    vectors=vectors,
                    holds=True,
                    resident=resident,
                )


def _read_columns(rows: RowShape, width: int, machine: Machine) -> Iterator[ColumnRows]:
    """For rows of any length; each access of a block moves neighbours of some hundred bytes."""
    wide = min(width, 4, max(1, 8 // rows.folds))
    for lanes, split, vectors, resident in (
        (128, 2, 16, 4),
        (64, 4, 16, 4),
        (256, 1, 16, 4),
        (256, 1, 8, 5),
    ):
        registers = vectors * wide * sum(rows.inputs) // 4
        wanted = machine.rows.column_registers + registers + 3 * wide * rows.folds
        fitting = max(1, min(resident, machine.registers_per_sm // (256 * wanted)))
        yield ColumnRows(
            lanes=lanes, split=split, width=wide, vectors=vectors, holds=False, resident=fitting
        )


def _at_least(count: int) -> int:
    """The next number of places that folds take together: a power of two, or a multiple of 8."""
    return 1 << (count - 1).bit_length() if count < 8 else -(-count // 8) * 8
