"""Configurations of matrix products: enumerate, filter with reasons, rank by the machine model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from kernelwright.ir.product_configs import GemmConfig, ProductConfig
from kernelwright.machine import Machine
from kernelwright.schedule.cuda_core_model import simt_registers, simt_seconds, thin_seconds
from kernelwright.schedule.few_configs import few_configs, few_seconds
from kernelwright.schedule.many_small import many_small_configs, many_small_seconds
from kernelwright.schedule.product_shape import ProductShape
from kernelwright.schedule.tensor_core_configs import tensor_core_configs
from kernelwright.schedule.tensor_core_model import tensor_core_seconds
from kernelwright.schedule.thin_configs import thin_configs


@lru_cache(maxsize=512)
def ranked_products(
    shape: ProductShape, widest: int, machine: Machine
) -> tuple[tuple[float, ProductConfig], ...]:
    """Configurations of a product with their modelled seconds; `widest`: bytes of an element.

    Layers of one module are often alike, and ranking takes milliseconds.
    """
    if shape.have_small_tiles(machine):
        return tuple(sorted(_ranked_many_small(shape, machine), key=lambda entry: entry[0]))
    simt = [
        (simt_seconds(shape, config, machine), _with_least_tiles(config, shape, machine))
        for config in _legal_configs(widest, machine)
    ]
    tensor_cores = [
        (tensor_core_seconds(shape, config, machine), config)
        for config in tensor_core_configs(shape, machine)
    ]
    thin = [
        (thin_seconds(shape, config, machine), config) for config in thin_configs(shape, machine)
    ]
    few = [(few_seconds(shape, config, machine), config) for config in few_configs(shape)]
    return tuple(sorted([*few, *thin, *tensor_cores, *simt], key=lambda entry: entry[0]))


def _ranked_many_small(
    shape: ProductShape, machine: Machine
) -> Iterator[tuple[float, ProductConfig]]:
    configs: list[ProductConfig] = [
        *many_small_configs(shape),
        *thin_configs(shape, machine),
        *tensor_core_configs(shape, machine),
    ]
    for config in configs:
        yield many_small_seconds(shape, config, machine), config


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
    # Few warps leave schedulers idle; with many threads registers run out.
    rates = machine.cuda_cores
    fits = rates.least_threads <= config.threads <= rates.most_threads
    return None if fits else "too few or too many threads"


def _tile_fits_registers(config: GemmConfig, itemsize: int, machine: Machine) -> str | None:
    # Those of a thread are limited, and one block must fit the multiprocessor.
    used = simt_registers(config, itemsize, machine)
    fits = used <= machine.cuda_cores.thread_registers
    fits = fits and used * config.threads <= machine.registers_per_sm
    return None if fits else "too many registers"


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


@lru_cache(maxsize=64)
def _legal_configs(itemsize: int, machine: Machine) -> tuple[GemmConfig, ...]:
    """The tiles that ask for no more than there is."""
    return tuple(it for it in gemm_configs() if not why_illegal(it, itemsize, machine))


def _with_least_tiles(config: GemmConfig, shape: ProductShape, machine: Machine) -> GemmConfig:
    """Leave products to the small tile that would fill less than its share of the card, unless the
    captured one is such a product itself: the config was chosen for it."""
    tiles = shape.tiles(config.block_m, config.block_n)
    filling = int(machine.sm_count * machine.cuda_cores.card_share)
    return replace(config, min_tiles=min(tiles, filling))
