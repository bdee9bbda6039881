"""Configurations of the product with few rows or columns that are legal for a product."""

from collections.abc import Iterator
from itertools import product

from kernelwright.ir.product_configs import ThinConfig
from kernelwright.machine import Machine
from kernelwright.schedule.product_shape import ProductShape

THREADS = (
    # columns, step, threads, resident blocks: enough in flight, best first.
    (4, 4, 256, 4),
    (4, 8, 256, 2),
    (4, 8, 256, 3),
    (8, 4, 256, 2),
    (4, 4, 512, 2),
    (4, 8, 128, 3),
    (8, 8, 256, 2),
    (8, 8, 128, 3),
)


def thin_configs(shape: ProductShape, machine: Machine) -> Iterator[ThinConfig]:
    """Those worth compiling; none for a product that is not thin."""
    if shape.products == 0:
        return
    for (rows, row_tiles), (columns, step, threads, resident) in product(
        _tiles(min(shape.m, shape.n), machine), THREADS
    ):
        config = ThinConfig(
            rows=rows,
            row_tiles=row_tiles,
            columns=columns,
            step=step,
            threads=threads,
            resident=resident,
            multiprocessors=machine.sm_count,
            wide=(shape.lhs if shape.n < shape.m else shape.rhs).major,
        )
        if _fits_registers(config, shape.dtype.itemsize, machine) and _fills(
            config, shape, machine
        ):
            yield config


def _tiles(thin: int, machine: Machine) -> Iterator[tuple[int, int]]:
    """Rows of a tile, and most tiles of rows."""
    rates = machine.thin
    if thin <= rates.most_rows:
        yield 1 << (thin - 1).bit_length(), 1
    if rates.tiled_rows < thin <= rates.tiled_rows * rates.most_row_tiles:
        yield rates.tiled_rows, rates.most_row_tiles


def _fits_registers(config: ThinConfig, itemsize: int, machine: Machine) -> bool:
    """Sums, what is loaded, the same as numbers to compute with, a row, and addresses."""
    size = max(1, itemsize // 4)
    loaded = config.columns * config.step
    numbers = config.rows * config.columns * size + loaded * size + config.step * size
    used = numbers + (loaded // 2 if itemsize == 2 else 0) + machine.cuda_cores.other_registers
    return used <= machine.registers_per_sm // (config.threads * config.resident)


def _fills(config: ThinConfig, shape: ProductShape, machine: Machine) -> bool:
    """Whether enough bytes are in flight to reach the bandwidth of memory."""
    loaded = config.columns * config.step * shape.dtype.itemsize
    return loaded * config.threads * config.resident >= machine.thin.flight_bytes
