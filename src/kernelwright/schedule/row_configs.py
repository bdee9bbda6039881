"""Configurations of the row family, best first by what was measured and what fits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod

from kernelwright.ir.anchors import Extent, RowProgram
from kernelwright.ir.configs import (
    BlockRows,
    ColumnPartRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.expr import Call, Operand, operations, walk
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine

_Tuned = RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows
_FUNCTIONS = frozenset({"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "xlogy"})
_EDGE_VECTORS = 13
_EDGE_THREADS = range(512, 641)
"""Threads of a block whose rows begin between two vectors, and how many of them a thread holds."""
_MOST_BLOCKS = 8
"""Blocks of a cluster with which rows whose lines end within vectors are read twice no slower."""
_SINGLE_ELEMENTS = 20
"""Elements of a thread that it reads one by one and keeps in registers."""
_FEW_VECTORS = 8
"""Vectors of a thread of a cluster with which it waits for exchanges more than it computes."""


def row_configs(
    program: RowProgram, inputs: Sequence[ValueType], machine: Machine
) -> tuple[RowConfig, ...]:
    """What the tuner tries for a row program, in this order; at least one."""
    rows = _describe(program, inputs, machine)
    tuned: list[_Tuned] = []
    if rows.length > 1 and rows.count > 0 and rows.inputs:
        tuned += _along(rows, machine) if rows.is_along else _columns(rows, machine)
    return (
        *(RowConfig(multiprocessors=machine.sm_count, tuned=each) for each in tuned),
        RowConfig(multiprocessors=machine.sm_count),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What matters of a program at the captured sizes."""

    count: int
    length: int
    """Elements of a row."""
    inner: int
    """Neighbours in memory: elements of a run of a row, or rows."""
    is_along: bool
    """Whether neighbours in memory belong to one row."""
    runs: int
    """Runs of a row."""
    levels: int
    inputs: tuple[int, ...]
    """Bytes of an element of each input with as many elements as the program."""
    others: int
    """Inputs with fewer elements that are not one for each row."""
    differ: int
    """Those of them that differ among neighbours."""
    line: int
    """Neighbours of a row among which each of them is one element, or differs from one to the
    next; all of the row where there are none."""
    results: tuple[int, ...]
    """Bytes of an element of each result with as many elements as the program."""
    folds: int
    operations: int
    """On an element, for all folds and results."""
    access_bytes: int
    """Bytes of the widest access of a thread."""
    functions: int
    """Those of them that take some twenty instructions each."""

    @property
    def width(self) -> int:
        """Elements that one access of the narrowest type moves, up to 8."""
        return min(8, self.access_bytes // min((*self.inputs, *self.results)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all inputs."""
        return self.length * sum(self.inputs)


def _describe(program: RowProgram, inputs: Sequence[ValueType], machine: Machine) -> _Rows:
    sizes = [dim.hint for dim in program.shape]
    walked = [at for at, size in enumerate(sizes) if size > 1]
    is_along = bool(walked) and walked[-1] in program.dims
    inner = 1
    for at in reversed(walked):
        if (at in program.dims) != is_along:
            break
        inner *= sizes[at]
    length = prod(sizes[at] for at in program.dims)
    tensors = [kind for kind in inputs if isinstance(kind, TensorType)]
    whole = [kind for kind in tensors if kind.numel_hint == prod(sizes)]
    fewer = [kind for kind in tensors if kind not in whole]
    expressions = [*(fold.value for fold in program.folds)]
    expressions += [result.value for result in program.results]
    return _Rows(
        count=prod(sizes) // length if length else 0,
        length=length,
        inner=inner,
        is_along=is_along,
        runs=length // inner if is_along and inner else 1,
        levels=len(program.levels),
        inputs=tuple(kind.dtype.itemsize for kind in whole),
        others=sum(_varies_along(program, kind) for kind in fewer),
        differ=sum(_size_at(program, kind, walked[-1]) > 1 for kind in fewer) if walked else 0,
        line=_line(program, [kind for kind in fewer if _varies_along(program, kind)]),
        results=tuple(
            result.value.dtype.itemsize
            for result in program.results
            if result.extent is Extent.ELEMENT
        ),
        folds=len(program.folds),
        access_bytes=machine.limits.access_bytes,
        operations=sum(operations(value) + _operands(value) for value in expressions),
        functions=sum(
            isinstance(part, Call) and part.op in _FUNCTIONS
            for value in expressions
            for part in walk(value)
        ),
    )


def _operands(value: object) -> int:
    return sum(isinstance(part, Operand) for part in walk(value))  # type: ignore[arg-type]


def _varies_along(program: RowProgram, kind: TensorType) -> bool:
    return any(_size_at(program, kind, at) > 1 for at in program.dims)


def _line(program: RowProgram, others: Sequence[TensorType]) -> int:
    """Elements of the innermost reduced dimensions along which none of these changes whether it
    varies."""
    line, innermost = 1, None
    for at in sorted(program.dims, reverse=True):
        if (size := program.shape[at].hint) == 1:
            continue
        varying = [_size_at(program, kind, at) > 1 for kind in others]
        if innermost not in (None, varying):
            break
        line, innermost = line * size, varying
    return line


def _size_at(program: RowProgram, kind: TensorType, at: int) -> int:
    """Along a dimension of the program; 1 where the tensor does not have that."""
    own = at - len(program.shape) + kind.rank
    return kind.shape[own].hint if own >= 0 else 1


# --- Rows of neighbours ------------------------------------------------------------------------


def _along(
    rows: _Rows, machine: Machine
) -> list[RingRows | PartRows | GridRows | ShortRows | BlockRows]:
    if rows.runs == 1 and (short := list(_short(rows, machine))):
        return [*short, *_rings(rows, machine)[:4]]
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
        return [*parts[:2], *rings]
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
            return [own, *parts[:2], *rings[:8]]
    return [*rings, parts[0]]


def _parts(rows: _Rows) -> list[tuple[int, int, int]]:
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


def _grid(rows: _Rows, machine: Machine) -> Iterator[GridRows]:
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


def _pieces(rows: _Rows, machine: Machine) -> Iterator[PartRows]:
    """Rows in one piece, each for a block of few threads: nothing of them is wanted twice."""
    for threads, unroll, resident in ((32, 4, 32), (64, 4, 16), (64, 8, 8)):
        registers = unroll * rows.width * sum(rows.inputs) // 4
        fits = registers <= machine.rows.held_registers // 2
        if rows.length >= threads * unroll * rows.width and fits:
            yield PartRows(threads=threads, width=rows.width, unroll=unroll, resident=resident)


def _blocks(rows: _Rows, machine: Machine) -> list[BlockRows]:
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
    for own in (32, 16, 8, 4, 2, 1) if width == 1 else (8, 4, 2, 1):
        threads = max(2 * warp, _power_of_two(-(-vectors // own), machine))
        room = rates.held_registers // (2 if threads < most_threads else 4)
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


def _short(rows: _Rows, machine: Machine) -> Iterator[ShortRows]:
    """For rows of up to some vectors for each thread of a warp."""
    if rows.count < machine.rows.short_rows:
        return
    if rows.length % rows.width != 0:
        yield from _single(rows, machine)
        return
    warp, most = machine.limits.warp_threads, machine.rows.held_registers
    vectors = rows.length // rows.width
    for wanted in (4, 2, 8):
        own = min(wanted, vectors)
        lanes = 1 << (-(-vectors // own) - 1).bit_length()
        registers = own * rows.width * max(1, sum(rows.inputs) // 4)
        if lanes > warp or own * rows.width > warp or registers > most:
            continue
        resident = 4 if registers <= most // 2 else 3
        yield ShortRows(
            threads=256,
            lanes=lanes,
            width=rows.width,
            vectors=-(-vectors // lanes),
            resident=resident,
        )


def _single(rows: _Rows, machine: Machine) -> Iterator[ShortRows]:
    """For rows that begin between vectors: each thread has elements one by one."""
    warp, most = machine.limits.warp_threads, _SINGLE_ELEMENTS
    registers = max(1, sum(rows.inputs) // 4)
    for wanted in (8, 4, 16, most):
        lanes = 1 << (-(-rows.length // wanted) - 1).bit_length()
        own = -(-rows.length // lanes)
        if lanes > warp or own * registers > most:
            continue
        many = own * registers > 8
        yield ShortRows(
            threads=128 if many else 256,
            lanes=lanes,
            width=1,
            vectors=own,
            resident=6 if many else 4,
        )


def _rings(rows: _Rows, machine: Machine) -> list[RingRows]:
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
    rings = list(dict.fromkeys(found))
    held = [_held(ring) for ring in rings if _is_held(rows, ring, machine)]
    return [*_held_with_edges(rows, rings, machine), *held, *rings]


def _of_lone_rows(rows: _Rows, vectors: int, machine: Machine) -> tuple[int, ...]:
    """Vectors of a thread where each row may have a multiprocessor to itself: one, since the time
    of a row is what each of its vectors waits for memory, one after the other."""
    is_lone = rows.count <= machine.sm_count and vectors <= machine.rows.holding_threads
    return (1, 2) if is_lone else ()


def _held_with_edges(rows: _Rows, rings: list[RingRows], machine: Machine) -> list[HeldRows]:
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


def _is_held(rows: _Rows, ring: RingRows, machine: Machine) -> bool:
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
    rows: _Rows, vectors: int, team: int, cluster: int, stages: int, machine: Machine
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


# --- Rows side by side -------------------------------------------------------------------------


def _columns(rows: _Rows, machine: Machine) -> list[ColumnRows]:
    width = rows.width
    while rows.inner % width != 0:
        width //= 2
    held = list(_held_columns(rows, width, machine)) if rows.results or rows.levels > 1 else []
    read = list(_read_columns(rows, width, machine))
    # The kernels that read rows leave few and long ones to others.
    tiles = -(-rows.count // (read[0].lanes * read[0].width))
    are_few = 2 * tiles < machine.sm_count
    if are_few and rows.length > 4 * read[0].split * read[0].vectors:
        return [_column_parts(rows, width), *held[:8], *read]
    return [*held[:8], *read]


def _column_parts(rows: _Rows, width: int) -> ColumnPartRows:
    """For rows that are few and long; a thread has some sixteen elements in flight.

    Lanes that no rows are left for stand at other places of those there are.
    """
    wide = min(width, 2, max(1, 8 // rows.folds))
    lanes = min(128, max(16, 1 << (-(-rows.count // wide) - 1).bit_length()))
    return ColumnPartRows(
        lanes=lanes, split=256 // lanes, width=wide, vectors=16 // wide, holds=False, resident=4
    )


def _held_columns(rows: _Rows, width: int, machine: Machine) -> Iterator[ColumnRows]:
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


def _read_columns(rows: _Rows, width: int, machine: Machine) -> Iterator[ColumnRows]:
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
