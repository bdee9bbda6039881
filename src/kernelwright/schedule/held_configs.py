"""Configurations of rows that threads hold in registers: lanes of a warp, or a block."""

from collections.abc import Iterator

from kernelwright.ir.row_configs import ShortRows
from kernelwright.machine import Machine
from kernelwright.schedule.row_shape import RowShape

_RESULT_REGISTERS = 8
"""Registers of each result of short rows beyond the first: its address, and what it is made of."""
_SINGLE_ELEMENTS = 20
"""Elements of a thread that it reads one by one and keeps in registers."""
_TEAM_THREADS = (256, 512)
"""Threads of a block that holds a row in registers: as few as can. Larger ones wait at barriers."""
_TEAM_ELEMENTS, _SINGLE_TEAM_ELEMENTS = 8, 13
"""Elements of a thread of such a block at least, in vectors and one by one."""
_MOST_TEAM_ELEMENTS = 32
"""And at most."""
_SINGLE_REGISTERS = 8
"""Registers of a thread besides, where it has elements one by one."""
_TEAM_ROWS = 4
"""Rows for a multiprocessor at least, where blocks hold one each."""


def held_configs(rows: RowShape, machine: Machine) -> list[ShortRows]:
    """For rows of one run of memory that fit; the fewest threads that hold one come first."""
    return list(_short(rows, machine)) or _teams(rows, machine)


def _short(rows: RowShape, machine: Machine) -> Iterator[ShortRows]:
    """For rows of up to some vectors for each thread of a warp."""
    width = rows.width
    while rows.length % width != 0:
        width //= 2
    if width == 1:
        yield from _single(rows, machine)
        return
    warp, most = machine.limits.warp_threads, machine.rows.held_registers
    vectors = rows.length // width
    for wanted in (4, 2, 8):
        own = min(wanted, vectors)
        lanes = 1 << (-(-vectors // own) - 1).bit_length()
        own = -(-vectors // lanes)
        held = own * width * max(1, sum(rows.inputs) // 4)
        if lanes > warp or own * width > warp or held > most or not _is_busy(rows, lanes, machine):
            continue
        registers = _short_registers(rows, own * width, machine)
        # Smaller blocks leave fewer registers unused, and fewer multiprocessors.
        threads = 256 if registers <= 64 and _is_busy(rows, lanes // 4, machine) else 128
        fitting = machine.registers_per_sm // (registers * threads)
        yield ShortRows(
            threads=threads,
            lanes=lanes,
            width=width,
            vectors=own,
            resident=min(fitting, 1024 // threads),
        )


def _teams(rows: RowShape, machine: Machine) -> list[ShortRows]:
    """Blocks that hold a row each in registers: many small ones hide each other's waiting."""
    width = rows.width
    # What differs along the row is found for a vector, not for each of its elements.
    while rows.length % width != 0 or (rows.others > 0 and rows.line % width != 0):
        width //= 2
    # Few rows leave multiprocessors idle: several share one.
    if rows.count < _TEAM_ROWS * machine.sm_count:
        return []
    # Of functions whose totals alone are wanted nothing is held: warps hide each other's longer.
    if width > 1 and rows.levels == 1 and rows.functions > 0 and not rows.results:
        return []
    warp, vectors = machine.limits.warp_threads, rows.length // width
    least = _TEAM_ELEMENTS // width if width > 1 else _SINGLE_TEAM_ELEMENTS
    found = []
    for most_threads in _TEAM_THREADS:
        own = max(least, 1, -(-vectors // most_threads))
        threads = -(-vectors // (own * warp)) * warp
        own = -(-vectors // threads)
        registers = _short_registers(rows, own * width, machine)
        # Elements one by one are asked for one by one whether they are there.
        registers += _SINGLE_REGISTERS if width == 1 else 0
        held = own * width * max(1, sum(rows.inputs) // 4)
        if own * width > _MOST_TEAM_ELEMENTS or held > machine.rows.held_registers:
            continue
        # Of one vector a thread has too little under way: rings have more.
        if own == 1 and width > 1:
            continue
        found.append(
            ShortRows(
                threads=threads,
                lanes=threads,
                width=width,
                vectors=own,
                resident=machine.registers_per_sm // (registers * threads),
            )
        )
    return [team for team in dict.fromkeys(found) if team.threads > warp and team.resident > 1]


def _is_busy(rows: RowShape, lanes: int, machine: Machine) -> bool:
    """Whether so many threads for each row keep the card busy."""
    return rows.count * lanes >= machine.rows.short_threads * machine.sm_count


def _short_registers(rows: RowShape, elements: int, machine: Machine) -> int:
    """Registers of a thread that holds so many elements of a row: what is stored of them, and what
    a fold takes of each at a further level, or at the first where that is something else."""
    taken = elements * (rows.levels - 1 + rows.is_computed)
    others = _RESULT_REGISTERS * max(0, len(rows.results) - 1)
    needed = machine.rows.short_registers + elements * sum(rows.inputs) // 4 + taken + others
    return max(machine.rows.least_registers, -(-needed // 8) * 8)


def _single(rows: RowShape, machine: Machine) -> Iterator[ShortRows]:
    """For rows that begin between vectors: each thread has elements one by one."""
    warp, most = machine.limits.warp_threads, _SINGLE_ELEMENTS
    registers = max(1, sum(rows.inputs) // 4)
    for wanted in (8, 4, 16, most):
        lanes = 1 << (-(-rows.length // wanted) - 1).bit_length()
        own = -(-rows.length // lanes)
        if lanes > warp or own * registers > most or not _is_busy(rows, lanes, machine):
            continue
        many = own * registers > 8
        yield ShortRows(
            threads=128 if many else 256,
            lanes=lanes,
            width=1,
            vectors=own,
            resident=6 if many else 4,
        )
