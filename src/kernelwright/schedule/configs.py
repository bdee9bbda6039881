"""Configurations: enumerate, filter with reasons, rank by the machine model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil

from kernelwright.ir.graph import Contract
from kernelwright.ir.plan import Config, GemmConfig, PointwiseConfig
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.roles import Roles, roles


def ranked_configs(
    anchor: Contract | None, inputs: Sequence[ValueType], output: TensorType, machine: Machine
) -> tuple[Config, ...]:
    """Every legal configuration, best first by the model: what the tuner tries in this order."""
    sizes = [kind.dtype.itemsize for kind in (output, *inputs) if isinstance(kind, TensorType)]
    if anchor is None:
        return tuple(pointwise_configs(min(sizes)))
    shape = _problem_shape(anchor, inputs)
    legal = [config for config in gemm_configs() if not why_illegal(config, max(sizes), machine)]
    ranked = sorted(legal, key=lambda config: _gemm_waves(config, shape, machine))
    return tuple(_with_least_tiles(config, shape, machine) for config in ranked)


# --- Pointwise ---------------------------------------------------------------------------------


def pointwise_configs(narrowest: int) -> Iterator[PointwiseConfig]:
    """Best first as measured on an H200; `narrowest`: bytes of the smallest element moved."""
    # One access moves 16 bytes of the narrowest type; more than 8 elements cost registers.
    width = min(8, 16 // narrowest)
    for unroll, threads in product((1, 2, 4), (256, 128, 512)):
        yield PointwiseConfig(threads=threads, width=width, unroll=unroll)


# --- Gemm --------------------------------------------------------------------------------------


def gemm_configs() -> Iterator[GemmConfig]:
    """The tiles worth compiling, legal or not."""
    for block_m, block_n, thread_m, thread_n, block_k, stages in product(
        (32, 64, 128, 256), (32, 64, 128, 256), (4, 8), (4, 8, 16), (8, 16, 32), (2, 3)
    ):
        yield GemmConfig(
            block_m=block_m,
            block_n=block_n,
            block_k=block_k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=stages,
        )


def _warps_tile_the_block(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # A warp covers 4 threads of rows by 8 of columns.
    rows, columns = 4 * config.thread_m, 8 * config.thread_n
    whole = config.block_m % rows == 0 and config.block_n % columns == 0
    return None if whole else "warps do not tile the block"


def _threads_fill_schedulers(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Fewer than two warps leave schedulers idle; above 512 threads registers run out.
    return None if 64 <= config.threads <= 512 else "too few or too many threads"


def _tile_fits_registers(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # A thread has 255 registers, and one block must fit the multiprocessor.
    used = _registers(config, itemsize)
    fits = used <= 240 and used * config.threads <= machine.registers_per_sm
    return None if fits else "too many registers"


def _registers(config: GemmConfig, itemsize: int) -> int:
    """Of a thread: accumulators, one fragment of each operand, and about 40 for addresses."""
    fragments = config.thread_m + config.thread_n
    return max(1, itemsize // 4) * (config.thread_m * config.thread_n + fragments) + 40


def _tile_fits_shared_memory(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Stages of both tiles, each row padded by 16 bytes, and the second sums of promotion.
    size = max(4, itemsize)
    rows = config.block_m + config.block_n + 32 // size
    elements = config.stages * config.block_k * rows + config.block_m * config.block_n
    return None if elements * size <= machine.shared_memory_per_block else "too much shared memory"


def _copies_divide_evenly(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # A pass of the block copies whole rows of 16-byte chunks along M or N, and 16 (or 8) elements
    # along K of as many rows as that leaves threads for.
    chunk = 16 // itemsize
    lanes = 16 if config.block_k % 16 == 0 else 8
    even = all(
        config.threads % (side // chunk) == 0 and side % (config.threads // lanes) == 0
        for side in (config.block_m, config.block_n)
    )
    return None if even else "uneven copies"


LEGAL: tuple[Callable[[GemmConfig, int, Machine], str | None], ...] = (
    _warps_tile_the_block,
    _threads_fill_schedulers,
    _tile_fits_registers,
    _tile_fits_shared_memory,
    _copies_divide_evenly,
)


def why_illegal(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    """What the configuration asks too much of, or None."""
    return next((why for rule in LEGAL if (why := rule(config, itemsize, machine))), None)


def _problem_shape(anchor: Contract, inputs: Sequence[ValueType]) -> tuple[int, int, int]:
    """Tiles' problem: (batch * everything but m and n, m, n) at the captured sizes."""
    found = roles(anchor)
    assert isinstance(found, Roles)
    sizes: dict[str, int] = {}
    for labels, kind in zip((anchor.lhs, anchor.rhs), inputs, strict=False):
        assert isinstance(kind, TensorType)
        sizes.update(zip(labels, (dim.hint for dim in kind.shape), strict=True))
    batch = 1
    for letter in found.batch:
        batch *= sizes[letter]
    return batch, sizes[found.m] if found.m else 1, sizes[found.n]


def _with_least_tiles(
    config: GemmConfig, shape: tuple[int, int, int], machine: Machine
) -> GemmConfig:
    """Leave products to the small tile that would fill less than half of the card, unless the
    captured one is such a product itself: the config was chosen for it."""
    batch, m, n = shape
    tiles = batch * ceil(m / config.block_m) * ceil(n / config.block_n)
    return replace(config, min_tiles=min(tiles, machine.sm_count // 2))


def _gemm_waves(config: GemmConfig, shape: tuple[int, int, int], machine: Machine) -> float:
    """Modelled time in arbitrary units: waves of tiles times the time of one tile's step."""
    batch, m, n = shape
    tiles = batch * ceil(m / config.block_m) * ceil(n / config.block_n)
    # An SM runs as many blocks as its registers hold, and 512 threads hide its latencies.
    fitting = machine.registers_per_sm // (_registers(config, 4) * config.threads)
    resident = max(1, min(512 // config.threads, fitting))
    waves = ceil(tiles / (machine.sm_count * resident))
    work = config.block_m * config.block_n * resident
    # Shared-memory reads and global loads for each multiply-add, and barriers for each step of K,
    # all slow a step down; the weights are fitted to benchmarks/results/kernels_h200.json.
    reads = 1 / config.thread_m + 1 / config.thread_n
    loads = 1 / config.block_m + 1 / config.block_n
    shallow = 0.02 if config.stages == 2 else 0.0
    overhead = 1 + 0.6 * reads + 25 * loads + 0.5 / config.block_k + shallow
    return waves * work * overhead
