"""Configurations of the row family, best first by what was measured and what fits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod

from kernelwright.ir.configs import (
    BlockRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.expr import Call, Operand, operations, walk
from kernelwright.ir.plan import Extent, RowProgram
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine

_ACCESS_BYTES = 16
_WARP = 32
_MOST_THREADS = 1024
_MOST_CLUSTER = 16
_FEWEST_REGISTERS = 64
"""Of a thread: with fewer, what is known of a row does not fit."""
_HELD_REGISTERS = 64
"""Most 32-bit registers of a thread that hold elements of columns."""
_LEAST_BLOCK_BYTES = 8 * 1024
"""Of a row that is worth a block of its own."""
_SHORT_ROWS = 2**15
"""Rows that keep the card busy with some on each warp."""
_MANY_ROWS = 2**12
"""That keep the card busy with one for each warp."""
_FUNCTIONS = frozenset({"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "xlogy"})
_HOLDING_THREADS = 512
"""With more a thread has too few registers to hold a row and to compute with it."""
_EDGE_VECTORS = 13
_EDGE_THREADS = range(512, 641)
"""Of a block whose rows begin between two vectors, and how many of them a thread holds."""
_FEW_VECTORS = 8
"""Of a thread of a cluster."""
_BUSY_THREADS = 1024
"""Of a multiprocessor that short rows are spread over."""
_ROW_IN_CACHE = 2**18
"""Bytes of a row that one block walks twice, if it runs beside many others."""
_ROW_OF_FEW = 2**16
"""Bytes of one that a block walks twice even where there are few of them."""
_EXCHANGE_BYTES = 12 * 1024
"""Shared memory that is left for the exchange of states."""
_GRID_BYTES = 4 * 1024
"""The same where all blocks of the card hold a row."""
_GRID_ROOM = 1.3
"""Rows that those hold at least: one is on its way while totals of another are exchanged."""
_GRID_ROWS = 8
"""Of such rows that are worth it: nothing is written before the first one is there, and nothing
read while the last one is written."""


def row_configs(
    program: RowProgram, inputs: Sequence[ValueType], machine: Machine
) -> tuple[RowConfig, ...]:
    """What the tuner tries for a row program, in this order; at least one."""
    rows = _describe(program, inputs)
    tuned: list[RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows] = []
    if rows.length > 1 and rows.count > 0 and rows.inputs:
        tuned += _along(rows, machine) if rows.is_along else _columns(rows)
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
    """Of a row."""
    levels: int
    inputs: tuple[int, ...]
    """Bytes of an element of each input with as many elements as the program."""
    others: int
    """Inputs with fewer elements that are not one for each row."""
    differ: int
    """Of them those that differ among neighbours."""
    results: tuple[int, ...]
    """Bytes of an element of each result with as many elements as the program."""
    folds: int
    operations: int
    """On an element, for all folds and results."""
    functions: int
    """Those of them that take some twenty instructions each."""

    @property
    def width(self) -> int:
        """Elements that one access of the narrowest type moves, up to 8."""
        return min(8, _ACCESS_BYTES // min((*self.inputs, *self.results)))

    @property
    def row_bytes(self) -> int:
        """Of the inputs."""
        return self.length * sum(self.inputs)


def _describe(program: RowProgram, inputs: Sequence[ValueType]) -> _Rows:
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
        others=sum(_varies_along(program, kind) for kind in tensors if kind not in whole),
        differ=sum(_size_at(program, kind, walked[-1]) > 1 for kind in tensors if kind not in whole)
        if walked
        else 0,
        results=tuple(
            result.value.dtype.itemsize
            for result in program.results
            if result.extent is Extent.ELEMENT
        ),
        folds=len(program.folds),
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


def _size_at(program: RowProgram, kind: TensorType, at: int) -> int:
    """Along a dimension of the program; 1 where the tensor does not have that."""
    own = at - len(program.shape) + kind.rank
    return kind.shape[own].hint if own >= 0 else 1


# --- Rows of neighbours ------------------------------------------------------------------------


def _along(
    rows: _Rows, machine: Machine
) -> list[RingRows | PartRows | GridRows | ShortRows | BlockRows]:
    if rows.runs == 1 and (short := list(_short(rows))):
        return [*short, *_rings(rows, machine)[:4]]
    parts = [
        PartRows(threads=threads, width=rows.width, unroll=unroll, resident=resident)
        for threads, unroll, resident in _parts(rows)
    ]
    rings = _rings(rows, machine)[:12] if rows.runs == 1 else []
    if not rings:
        blocks = _blocks(rows, machine) if rows.runs > 1 else []
        # A block for a row of few bytes is idle: the general kernel puts many rows on one.
        if rows.row_bytes < _LEAST_BLOCK_BYTES:
            return [*blocks]
        return [*blocks, *_grid(rows, machine), *parts]
    # Few rows, and a card that would be idle.
    busy = min(rows.count, machine.sm_count) * rings[0].cluster
    if busy < machine.sm_count and rows.row_bytes > 2**16:
        return [*parts[:2], *rings]
    if rows.levels == 1 and not rows.results and rows.count >= _MANY_ROWS:
        return [*_pieces(rows), *rings[:8], parts[0]]
    return [*rings, parts[0]]


def _parts(rows: _Rows) -> list[tuple[int, int, int]]:
    """Threads of a block, accesses in flight, blocks of a multiprocessor."""
    # What takes longer to compute than to read wants more threads with less in flight.
    choices = [(512, 2, 3), (512, 4, 2), (256, 4, 4), (512, 8, 1), (512, 2, 2)]
    return choices if rows.functions > 1 else [*choices[1:3], choices[0], *choices[3:]]


def _grid(rows: _Rows, machine: Machine) -> Iterator[GridRows]:
    """For many rows that not even a cluster holds, but all blocks together."""
    ring = machine.shared_memory_per_block - _GRID_BYTES
    vector = rows.width * sum(rows.inputs)
    is_wanted = (
        machine.has_clusters
        and rows.runs == rows.levels == 1
        and bool(rows.results)
        # What differs along a row is read again for each, from the cache: as slow as memory.
        and rows.differ == 0
        and rows.length % rows.width == 0
        and all(rows.width * size % _ACCESS_BYTES == 0 for size in rows.inputs)
        and rows.row_bytes * _GRID_ROOM <= ring * machine.sm_count
        and rows.count >= _GRID_ROWS
        # Of fewer bytes many are still in the cache when parts of rows are read again.
        and rows.count * rows.row_bytes > 2 * machine.l2_bytes
    )
    # Where less than a second row fits, totals have to be there soon after a row's last chunk.
    choices = [(8, 4), (12, 2)]
    if 2 * rows.row_bytes > ring * machine.sm_count:
        choices.reverse()
    for fold_warps, accesses in choices:
        vectors = accesses * _ACCESS_BYTES // vector
        if is_wanted and vectors > 0:
            yield GridRows(
                fold_warps=fold_warps,
                finish_warps=8,
                width=rows.width,
                vectors=vectors,
                ring=ring,
            )


def _pieces(rows: _Rows) -> Iterator[PartRows]:
    """Rows in one piece, each for a block of few threads: nothing of them is wanted twice."""
    for threads, unroll, resident in ((32, 4, 32), (64, 4, 16), (64, 8, 8)):
        registers = unroll * rows.width * sum(rows.inputs) // 4
        if rows.length >= threads * unroll * rows.width and registers <= _HELD_REGISTERS // 2:
            yield PartRows(threads=threads, width=rows.width, unroll=unroll, resident=resident)


def _blocks(rows: _Rows, machine: Machine) -> list[BlockRows]:
    """A block for each row: held in registers, or read again from the cache."""
    width = rows.width
    while rows.inner % width != 0:
        width //= 2
    vectors = rows.length // width
    if vectors < 2 * _WARP:
        return []
    registers = max(1, width * sum(rows.inputs) // 4)
    # As many threads as fill the card: more for each of a few rows.
    filling = min(max(machine.sm_count * _BUSY_THREADS // rows.count, 2 * _WARP), 512)
    held: list[BlockRows] = []
    for own in (8, 4, 2, 1):
        threads = max(2 * _WARP, _power_of_two(-(-vectors // own)))
        room = _HELD_REGISTERS // (2 if threads < _MOST_THREADS else 4)
        if threads <= _MOST_THREADS and own * registers <= room and vectors * 4 > threads * own:
            held.append(_block(threads, width, own, registers, holds=True))
    held.sort(key=lambda block: max(block.threads / filling, filling / block.threads))
    is_in_cache = rows.row_bytes <= _ROW_IN_CACHE and 2 * rows.count >= machine.sm_count
    if not is_in_cache and rows.row_bytes > _ROW_OF_FEW:
        return held
    own = max(1, _HELD_REGISTERS // 4 // registers)
    read = [_block(threads, width, own, registers, holds=False) for threads in (512, 1024, 256)]
    return [*held, *(block for block in read if vectors * 4 > block.threads * own)]


def _block(threads: int, width: int, vectors: int, registers: int, *, holds: bool) -> BlockRows:
    """`registers`: of a thread for a vector."""
    each = threads * (_FEWEST_REGISTERS // 4 * 3 + vectors * registers)
    return BlockRows(
        threads=threads,
        width=width,
        vectors=vectors,
        holds=holds,
        resident=max(1, min(65536 // each, 2048 // threads, 16)),
    )


def _short(rows: _Rows) -> Iterator[ShortRows]:
    """For rows of up to some vectors for each thread of a warp."""
    if rows.length % rows.width != 0 or rows.count < _SHORT_ROWS:
        return
    vectors = rows.length // rows.width
    for most in (4, 2, 8):
        own = min(most, vectors)
        lanes = 1 << (-(-vectors // own) - 1).bit_length()
        registers = own * rows.width * max(1, sum(rows.inputs) // 4)
        if lanes > _WARP or own * rows.width > _WARP or registers > _HELD_REGISTERS:
            continue
        resident = 4 if registers <= _HELD_REGISTERS // 2 else 3
        yield ShortRows(
            threads=256,
            lanes=lanes,
            width=rows.width,
            vectors=-(-vectors // lanes),
            resident=resident,
        )


def _rings(rows: _Rows, machine: Machine) -> list[RingRows]:
    """Teams that hold a row: few threads with many vectors each come first.

    What a team does once for each row, whatever its length, takes as long as some ten vectors.
    """
    vectors = -(-rows.length // rows.width) + (rows.length % rows.width != 0)
    if vectors < _WARP // 4:
        return []
    found: list[RingRows] = []
    for most in (12, 24, 8, 16, 5):
        team = _power_of_two(-(-vectors // most))
        cluster = max(1, team // _MOST_THREADS)
        threads = min(team, _MOST_THREADS)
        # Large blocks are alone on a multiprocessor: what else could run hides their waiting, too.
        for stages in (1, 2) if threads >= _MOST_THREADS // 2 else (2, 1):
            found += _ring(rows, vectors, threads, cluster, stages, machine)
            if threads >= _MOST_THREADS // 2:
                found += _ring(rows, vectors, threads // 2, cluster * 2, stages, machine)
    # A cluster with few vectors a thread waits for its exchange more than it computes.
    found.sort(key=lambda ring: ring.cluster > 1 and ring.vectors <= _FEW_VECTORS)
    rings = list(dict.fromkeys(found))
    held = [_held(ring) for ring in rings if _is_held(rows, ring)]
    return [*_held_with_edges(rows, rings), *held, *rings]


def _held_with_edges(rows: _Rows, rings: list[RingRows]) -> list[HeldRows]:
    """Where rows begin between two vectors, what to do with the edges takes registers: a team that
    has rows of its size all the same, of blocks that are no power of two."""
    vectors = -(-rows.length // rows.width) + 1
    threads = -(-vectors // (2 * _EDGE_VECTORS * _WARP)) * _WARP
    is_wanted = (
        rows.length % rows.width != 0
        and threads in _EDGE_THREADS
        and bool(rows.results)
        and rows.functions == 0
        and rows.width * sum(rows.inputs) == _ACCESS_BYTES
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


def _is_held(rows: _Rows, ring: RingRows) -> bool:
    """Whether registers have room for a row, and the time of an exchange between blocks is worth
    it."""
    registers = ring.vectors * ring.width * sum(rows.inputs) // 4
    return (
        ring.cluster > 1
        and ring.stages == ring.resident == 1
        and ring.threads <= _HOLDING_THREADS
        and registers <= _HELD_REGISTERS
        and rows.length % rows.width == 0
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
    threads = 4 * _WARP if team == _WARP else team
    ring = stages * threads * own * rows.width * sum(rows.inputs)
    room = machine.shared_memory_per_block - _EXCHANGE_BYTES
    resident = min(room // ring, machine.registers_per_sm // (_FEWEST_REGISTERS * threads), 16)
    if resident < 1 or cluster > (_MOST_CLUSTER if machine.has_clusters else 1):
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


def _power_of_two(least: int) -> int:
    """The next power of two, at least a warp."""
    return max(_WARP, 1 << (least - 1).bit_length())


# --- Rows side by side -------------------------------------------------------------------------


def _columns(rows: _Rows) -> list[ColumnRows]:
    width = rows.width
    while rows.inner % width != 0:
        width //= 2
    held = [config for config in _held_columns(rows, width) if rows.results or rows.levels > 1]
    return [*held[:8], *_read_columns(rows, width)]


def _held_columns(rows: _Rows, width: int) -> Iterator[ColumnRows]:
    """With all elements of the rows in registers: as many bytes of them as a thread has room."""
    for wide, split in product(sorted({width, max(1, width // 2)}, reverse=True), (8, 16, 4, 2)):
        vectors = _at_least(-(-rows.length // split))
        registers = vectors * wide * sum(rows.inputs) // 4
        if registers > _HELD_REGISTERS or vectors * split > 4 * rows.length:
            continue
        states = wide * rows.folds * 3
        for lanes in (32, 64):
            threads = lanes * split
            if threads <= 512 and wide * rows.folds <= 8:
                wanted = 40 + registers + states
                resident = max(1, min(65536 // (threads * wanted), 2048 // threads))
                yield ColumnRows(
                    lanes=lanes,
                    split=split,
                    width=wide,
                    vectors=vectors,
                    holds=True,
                    resident=resident,
                )


def _read_columns(rows: _Rows, width: int) -> Iterator[ColumnRows]:
    """For rows of any length; each access of a block moves neighbours of some hundred bytes."""
    wide = min(width, 4, max(1, 8 // rows.folds))
    for lanes, split, vectors, resident in (
        (128, 2, 16, 4),
        (64, 4, 16, 4),
        (256, 1, 16, 4),
        (256, 1, 8, 5),
    ):
        registers = vectors * wide * sum(rows.inputs) // 4
        fitting = max(1, min(resident, 65536 // (256 * (40 + registers + 3 * wide * rows.folds))))
        yield ColumnRows(
            lanes=lanes, split=split, width=wide, vectors=vectors, holds=False, resident=fitting
        )


def _at_least(count: int) -> int:
    """The next number of places that folds take together: a power of two, or a multiple of 8."""
    return 1 << (count - 1).bit_length() if count < 8 else -(-count // 8) * 8
