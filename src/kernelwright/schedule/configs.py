"""Configurations: enumerate, filter with reasons, rank by the machine model."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import ceil

from kernelwright.ir.graph import Contract, Node
from kernelwright.ir.plan import Config, GemmConfig, PointwiseConfig
from kernelwright.machine import Machine
from kernelwright.schedule.roles import Roles, roles


def best_config(
    anchor: Contract | None, inputs: Sequence[Node], root: Node, machine: Machine
) -> Config:
    """The configuration that the model ranks first."""
    return ranked_configs(anchor, inputs, root, machine)[0]


def ranked_configs(
    anchor: Contract | None, inputs: Sequence[Node], root: Node, machine: Machine
) -> tuple[Config, ...]:
    """Every legal configuration, best first by the model: what the tuner tries in this order."""
    itemsize = max(node.tensor.dtype.itemsize for node in (root, *inputs) if not node.is_scalar)
    if anchor is None:
        return tuple(pointwise_configs())
    shape = _problem_shape(anchor, inputs)
    legal = [config for config in gemm_configs() if not why_illegal(config, itemsize, machine)]
    return tuple(sorted(legal, key=lambda config: _gemm_waves(config, shape, machine)))


# --- Pointwise ---------------------------------------------------------------------------------


def pointwise_configs() -> Iterator[PointwiseConfig]:
    """Measured order on an H200: one 16-byte access in flight per operand suffices when warps
    are many, so smaller unrolls come first."""
    for unroll, threads in product((2, 4, 1), (256, 512, 128)):
        yield PointwiseConfig(threads=threads, vector_bytes=16, unroll=unroll)


# --- Gemm --------------------------------------------------------------------------------------


def gemm_configs() -> Iterator[GemmConfig]:
    """The tiles worth compiling, legal or not."""
    for block_m, block_n, thread_m, thread_n, block_k, stages in product(
        (32, 64, 128, 256), (32, 64, 128, 256), (4, 8), (4, 8), (8, 16), (2, 3)
    ):
        yield GemmConfig(
            block_m=block_m,
            block_n=block_n,
            block_k=block_k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=stages,
        )


def _threads_fill_warps(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # A block is whole warps, at least four so that all four schedulers of an SM have one.
    return None if config.threads % 32 == 0 and 64 <= config.threads <= 512 else "threads"


def _tile_fits_registers(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Accumulators, their master copies and two fragments must stay well under 255 registers.
    words = max(1, itemsize // 4)
    used = words * (config.thread_m * config.thread_n + 2 * (config.thread_m + config.thread_n))
    return None if used <= 128 else "registers"


def _tile_fits_shared_memory(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Static shared memory ends at 48 KiB.
    size = config.stages * config.block_k * (config.block_m + config.block_n + 8) * itemsize
    return None if size <= 48 * 1024 else "shared memory"


def _loads_divide_evenly(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Every thread copies the same number of elements of each tile.
    even = all(
        side * config.block_k % config.threads == 0 for side in (config.block_m, config.block_n)
    )
    return None if even else "tile copies"


LEGAL: tuple[Callable[[GemmConfig, int, Machine], str | None], ...] = (
    _threads_fill_warps,
    _tile_fits_registers,
    _tile_fits_shared_memory,
    _loads_divide_evenly,
)


def why_illegal(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    """What the configuration asks too much of, or None."""
    return next((why for rule in LEGAL if (why := rule(config, itemsize, machine))), None)


def _problem_shape(anchor: Contract, inputs: Sequence[Node]) -> tuple[int, int, int]:
    """Tiles' problem: (batch * everything but m and n, m, n) at the captured sizes."""
    found = roles(anchor)
    assert isinstance(found, Roles)
    sizes: dict[str, int] = {}
    for labels, node in zip((anchor.lhs, anchor.rhs), inputs, strict=False):
        sizes.update(zip(labels, (dim.hint for dim in node.tensor.shape), strict=True))
    batch = 1
    for letter in found.batch:
        batch *= sizes[letter]
    return batch, sizes[found.m] if found.m else 1, sizes[found.n]


def _gemm_waves(config: GemmConfig, shape: tuple[int, int, int], machine: Machine) -> float:
    """Modelled time in arbitrary units: waves of tiles times the time of one tile's step."""
    batch, m, n = shape
    tiles = batch * ceil(m / config.block_m) * ceil(n / config.block_n)
    # An SM runs as many blocks as give it 512 threads, about what hides its latencies.
    resident = max(1, 512 // config.threads)
    waves = ceil(tiles / (machine.sm_count * resident))
    work = config.block_m * config.block_n * resident
    # Shared-memory reads per multiply-add, and loads per multiply-add, both slow a step down.
    reads = 1 / config.thread_m + 1 / config.thread_n
    loads = 1 / config.block_m + 1 / config.block_n
    overhead = 1 + 1.2 * reads + 4 * loads + 0.5 / config.block_k + 0.05 * config.stages
    return waves * work * overhead
