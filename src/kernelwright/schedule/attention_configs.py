"""Configurations of attention, and how long it takes in ours and in the library."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.attention_configs import AttentionConfig
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import AttentionRates, Machine

MOST_COLUMNS = 256
"""Columns of q, k and v that a block holds."""
LEAST_COLUMNS = 8
"""Columns of q and k that tell whether numbers of a row are small."""
ELEMENTS = (DType.F32, DType.F16, DType.BF16)
_STATIC_SHARED = 1024
"""Bytes of static shared memory at most, barriers."""
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
    masked: bool
    """A mask of its own, beside what causal cuts off."""

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
        masked=kind.masking is not Masking.NONE,
    )


def attention_configs(sizes: AttentionSizes, machine: Machine) -> tuple[AttentionConfig, ...]:
    """Those that a block has room for, best first: many rows, long steps, several stages."""
    room = machine.shared_memory_per_block - _STATIC_SHARED
    found = [it for it in _candidates(sizes) if it.shared_bytes <= room]
    few = sizes.rows <= 64
    return tuple(sorted(found, key=lambda it: (it.stages == 1, (it.consumers == 1) != few,
                                               -it.block_n)))  # fmt: skip


def _candidates(sizes: AttentionSizes) -> Iterator[AttentionConfig]:
    """Those whose sums and scores fit registers."""
    depth, width = ceil(sizes.depth / 16) * 16, ceil(max(sizes.width, 1) / 64) * 64
    planes = 2 if sizes.dtype is DType.F32 else 1
    most = 64 if planes == 2 else 128
    for block_n in (128, 64) if max(depth, width) <= most else (64,):
        for consumers in (2, 1):
            # Pairs of wide rows need the registers of a block with fewer threads.
            if planes == 2 and consumers == 2 and max(depth, width) > 128:
                continue
            for stages in (2, 1):
                yield AttentionConfig(
                    depth=depth,
                    width=width,
                    block_n=block_n,
                    stages=stages,
                    consumers=consumers,
                    planes=planes,
                )


def rates_of(machine: Machine) -> AttentionRates:
    """The rates of a card that has configurations."""
    assert machine.attention is not None, f"{machine.name} has no attention by warpgroups"
    return machine.attention


def attention_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of our launch: planes of float32 operands, the products, and masks."""
    rates, size = rates_of(machine), sizes.dtype.itemsize
    planes = 12 * sizes.elements / machine.copy_bandwidth if size == 4 else 0.0
    work = max(sizes.flops / rates.flops[size], size * sizes.elements / machine.read_bandwidth)
    return rates.launch_seconds[size] + planes + work + _mask_seconds(sizes, rates.mask_seconds)


def library_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of PyTorch's fastest backend; none is fused for grouped heads of float32."""
    rates, size = rates_of(machine), sizes.dtype.itemsize
    if size == 4 and sizes.groups < sizes.heads:
        return _unfused_seconds(sizes, machine)
    work = max(sizes.flops / rates.library_flops[size],
               size * sizes.elements / machine.read_bandwidth)  # fmt: skip
    masks = _mask_seconds(sizes, rates.library_mask_seconds)
    return rates.library_launch_seconds[size] + work + masks


def _mask_seconds(sizes: AttentionSizes, of_score: float) -> float:
    return of_score * sizes.heads * sizes.scores if sizes.masked else 0.0


def _unfused_seconds(sizes: AttentionSizes, machine: Machine) -> float:
    """Seconds of products and softmax in float32 with keys and values repeated for each head."""
    columns, scores = sizes.depth + sizes.width, sizes.heads * sizes.rows * sizes.keys
    moved = 4 * (_SCORE_PASSES * scores + _KEY_PASSES * sizes.heads * sizes.keys * columns)
    products = 2 * scores * columns / machine.flops["fp32_simt"]
    return rates_of(machine).library_launch_seconds[4] + products + moved / machine.copy_bandwidth
