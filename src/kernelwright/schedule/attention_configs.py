"""Configurations of attention, and how long it takes in ours and in the library."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil

from kernelwright.ir.attention import Attention, Masking, Weighing
from kernelwright.ir.attention_configs import AttentionConfig
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import AttentionRates, Machine

MOST_COLUMNS = 256
"""Columns of q, k and v that a block holds."""
LEAST_COLUMNS = 8
"""Columns of q and k that tell whether numbers of a row are small."""
ELEMENTS = (DType.F32, DType.F16, DType.BF16)
_STATIC_SHARED = 1024
"""Bytes of static shared memory at most, barriers."""
MOST_FEW = 8
"""Rows of all heads that have keys in common for which there is a kernel of its own."""
_MANY_ROWS = 1024
"""Rows of a head from which on blocks of 192 leave few of their rows without work."""
_TILE = 128
"""Rows of a tile, and keys of its step, that the model counts."""
_SHORT_TILE = 64
"""Rows, keys and columns of tiles of short rows, and of PyTorch's in float32."""
_SCORE_PASSES = 8
_KEY_PASSES = 5
"""How often PyTorch moves scores, and keys and values, where it fuses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Sizes of an attention node at capture."""

    heads: int
    """Heads of all batches."""
    groups: int
    """Heads of all batches that have keys of their own."""
    rows: int
    keys: int
    depth: int
    width: int
    dtype: DType
    causal: bool
    is_softmax: bool
    mask_bytes: int
    """Bytes of an element of a mask of its own, beside what causal cuts off; 0 without one."""

    @property
    def scores(self) -> int:
        """Scores of a head that are not masked by their place."""
        if not self.causal:
            return self.rows * self.keys
        whole = min(self.rows, self.keys)
        return whole * (whole + 1) // 2 + (self.rows - whole) * self.keys

    @property
    def elements(self) -> int:
        """Numbers of q, k and v."""
        return self.heads * self.rows * self.depth + self.groups * self.keys * (
            self.depth + self.width
        )

    @property
    def few(self) -> int:
        """The least power of two of rows that have keys in common; 0 where they are not few, or
        have no more keys than a step of blocks for many rows."""
        rows = self.heads // max(self.groups, 1) * self.rows
        is_few = self.is_softmax and 0 < rows <= MOST_FEW
        return 1 << (rows - 1).bit_length() if is_few and self.keys > _SHORT_TILE else 0

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * self.heads * self.scores * (self.depth + self.width)


def attention_sizes(kind: Attention, q: TensorType, k: TensorType, v: TensorType,
                    result: TensorType) -> AttentionSizes:  # fmt: skip
    """The sizes of a node with these operands."""
    heads = 1
    for dim in kind.rows_last(result.shape)[:-2]:
        heads *= dim.hint
    groups = 1
    for dim in k.shape[:-2]:
        groups *= dim.hint
    return AttentionSizes(
        heads=heads,
        groups=groups,
        rows=q.shape[-2].hint,
        keys=k.shape[-2].hint,
        depth=q.shape[-1].hint,
        width=v.shape[-1].hint,
        dtype=q.dtype,
        causal=kind.causal,
        is_softmax=kind.weighing is Weighing.SOFTMAX,
        mask_bytes={Masking.NONE: 0, Masking.KEEP: 1, Masking.ADD: q.dtype.itemsize}[kind.masking],
    )


def sizes_of_node(node: Node, graph: Graph) -> AttentionSizes:
    """The sizes of an attention node of a graph."""
    assert isinstance(node.kind, Attention)
    q, k, v = (graph[name].tensor for name in node.inputs[:3])
    return attention_sizes(node.kind, q, k, v, node.tensor)


def attention_configs(sizes: AttentionSizes, machine: Machine) -> tuple[AttentionConfig, ...]:
    """Those that a block has room for, best first.

    Of short rows those with several blocks at a time; else those with as many stages as there are
    steps, as many rows as are fastest, and steps that are long, but not longer than the keys.
    """
    room = machine.shared_memory_per_block - _STATIC_SHARED
    found = [it for it in _candidates(sizes) if it.shared_bytes <= room]
    wanted, short = _consumers(sizes, machine), are_short(sizes, machine)

    def order(it: AttentionConfig) -> tuple[float, ...]:
        stages = 1 if sizes.dtype is DType.F32 and (short or sizes.keys <= it.block_n) else 2
        keys = ceil(max(sizes.keys, 1) / it.block_n) * it.block_n
        multiplied = keys * (rates_of(machine).half_steps if it.block_n == 64 else 1.0)
        return (
            it.stages != stages,
            abs(it.consumers - wanted),
            it.block_n if short else multiplied,
        )

    return tuple(sorted(found, key=order))


def are_short(sizes: AttentionSizes, machine: Machine) -> bool:
    """Whether several blocks of one warpgroup and short steps are fastest: while one takes
    exponentials or stores, others multiply."""
    return (
        max(sizes.depth, sizes.width) <= 64
        and not sizes.few
        and sizes.rows <= rates_of(machine).short_rows[sizes.dtype.itemsize]
    )


def _consumers(sizes: AttentionSizes, machine: Machine) -> int:
    """Warpgroups that are fastest: three hide exponentials of narrow rows, but have many rows."""
    if sizes.rows <= 64 or are_short(sizes, machine):
        return 1
    is_narrow = sizes.dtype is not DType.F32 and max(sizes.depth, sizes.width) <= 64
    return 3 if is_narrow and not sizes.causal and sizes.rows >= _MANY_ROWS else 2


def _candidates(sizes: AttentionSizes) -> Iterator[AttentionConfig]:
    """Those whose sums and scores fit registers."""
    depth, width = ceil(sizes.depth / 16) * 16, ceil(max(sizes.width, 1) / 64) * 64
    planes, columns = 2 if sizes.dtype is DType.F32 else 1, max(depth, width)
    consumers = [1]
    # Pairs of wide rows need the registers of a block with fewer threads.
    if planes == 1 or columns <= 128:
        consumers.append(2)
    if planes == 1 and columns <= 64:
        consumers.append(3)
    steps = (128, 64) if columns <= (64 if planes == 2 else 128) else (64,)
    for block_n, groups, stages in product(steps, consumers, (2, 1)):
        yield AttentionConfig(
            depth=depth,
            width=width,
            block_n=block_n,
            stages=stages,
            consumers=groups,
            planes=planes,
            mask_bytes=sizes.mask_bytes,
            few=sizes.few,
        )


def rates_of(machine: Machine) -> AttentionRates:
    """The rates of a card that has configurations."""
    assert machine.attention is not None, f"{machine.name} has no attention by warpgroups"
    return machine.attention


def attention_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of our launches: planes of float32 operands, unless rows are few, products, masks."""
    rates, size = rates_of(machine), sizes.dtype.itemsize
    masks = _mask_seconds(sizes, rates.mask_seconds)
    if sizes.few:
        seconds = size * sizes.elements / rates.few_bandwidth[size]
        return rates.launch_seconds[2] + seconds + masks
    if are_short(sizes, machine):
        # Causal tiles are half as long at most: not counted.
        tiles = sizes.heads * ceil(sizes.rows / _SHORT_TILE)
        steps = ceil(sizes.keys / _SHORT_TILE)
        of_tile = rates.short_tile_seconds[size] + steps * rates.short_step_seconds[size]
        planes = 8 * sizes.elements / machine.copy_bandwidth if size == 4 else 0.0
        work = planes + of_tile * tiles / machine.sm_count
        return rates.short_launch_seconds[size] + max(work, _reading(sizes, machine)) + masks
    if size == 4:
        planes = 12 * sizes.elements / machine.copy_bandwidth
        is_narrow = sizes.causal and max(sizes.depth, sizes.width) <= 64
        work = planes + sizes.flops / (rates.narrow_causal_flops if is_narrow else rates.flops)
    else:
        by_columns = rates.causal_step_seconds if sizes.causal else rates.step_seconds
        work = _tile_seconds(sizes, rates.tile_seconds, by_columns, machine)
    return rates.launch_seconds[size] + max(work, _reading(sizes, machine)) + masks


def library_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of PyTorch's fastest backend; none is fused for grouped heads of float32, and in 16
    bits they have keys and values that the module repeated."""
    rates, size = rates_of(machine), sizes.dtype.itemsize
    if size == 4 and sizes.groups < sizes.heads:
        return _unfused_seconds(sizes, machine)
    if size == 4:
        # Tiles are of 64 rows, 64 keys and 64 columns.
        padding = 1.0
        for count in (sizes.rows, sizes.keys, (sizes.depth + sizes.width) / 2):
            padding *= ceil(count / _SHORT_TILE) * _SHORT_TILE / max(count, 1)
        work = padding * sizes.flops / rates.library_flops
    elif sizes.few:
        work = size * sizes.elements / rates.library_few_bandwidth
    else:
        steps = rates.library_causal_step_seconds if sizes.causal else rates.library_step_seconds
        work = _tile_seconds(sizes, rates.library_tile_seconds, steps, machine)
    masks = _mask_seconds(sizes, rates.library_mask_seconds)
    repeats = _repeat_seconds(sizes, machine) if sizes.groups < sizes.heads else 0.0
    return (
        rates.library_launch_seconds[size] + max(work, _reading(sizes, machine)) + masks + repeats
    )


def _reading(sizes: AttentionSizes, machine: Machine) -> float:
    """Least seconds of reading q, k and v."""
    return sizes.dtype.itemsize * sizes.elements / machine.read_bandwidth


def _tile_seconds(
    sizes: AttentionSizes, of_tile: float, of_step: Mapping[int, float], machine: Machine
) -> float:
    """Seconds of the multiprocessor with most tiles; causal ones come in pairs, a long one with a
    short one."""
    columns = max(sizes.depth, sizes.width)
    step = next(seconds for most, seconds in of_step.items() if columns <= most)
    tiles = max(1, ceil(sizes.rows / _TILE))
    units, of_unit = (ceil(tiles / 2), min(tiles, 2)) if sizes.causal else (tiles, 1)
    steps = tiles * ceil(sizes.keys / _TILE)
    if sizes.causal:
        # Of the last step of a tile half is cut off.
        steps = min(steps, ceil(sizes.scores / _TILE**2 + tiles / 2))
    waves = ceil(max(1, sizes.heads) * units / machine.sm_count)
    return waves * (of_unit * of_tile + steps / units * step)


def _repeat_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds in which keys and values are repeated for each head, which ours reads as they are."""
    columns = sizes.depth + sizes.width
    read, written = sizes.groups, sizes.heads
    moved = sizes.dtype.itemsize * (read + written) * sizes.keys * columns
    launches = 2 * machine.launches.product_seconds
    return launches + moved / machine.copy_bandwidth


def _mask_seconds(sizes: AttentionSizes, of_score: float) -> float:
    return of_score * sizes.heads * sizes.scores if sizes.mask_bytes else 0.0


def _unfused_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of products and softmax in float32 with keys and values repeated for each head."""
    columns, scores = sizes.depth + sizes.width, sizes.heads * sizes.rows * sizes.keys
    moved = 4 * (_SCORE_PASSES * scores + _KEY_PASSES * sizes.heads * sizes.keys * columns)
    products = 2 * scores * columns / machine.flops["fp32_simt"]
    return rates_of(machine).library_launch_seconds[4] + products + moved / machine.copy_bandwidth
