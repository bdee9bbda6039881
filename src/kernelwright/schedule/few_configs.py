"""Configurations of the 16-bit product with few rows or columns, and how long it takes."""

from collections.abc import Iterator
from math import ceil

from kernelwright.ir.product_configs import FewConfig, Major
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.product_shape import ProductShape

_CONFIGS = (
    # groups of columns, runs of K under way, warps
    (1, 4, 8),
    (1, 4, 16),
    (1, 6, 16),
    (1, 4, 4),
    (2, 4, 4),
    (4, 4, 4),
)


def few_configs(shape: ProductShape) -> Iterator[FewConfig]:
    """Those worth compiling; none where rows are many or do not lie along K in whole vectors."""
    factors = (shape.lhs, shape.rhs)
    is_along_k = all(it.major is Major.K and it.is_aligned for it in factors)
    is_few = 0 < min(shape.m, shape.n) <= FewConfig.ROWS and shape.products > 0
    is_short = shape.dtype in (DType.F16, DType.BF16)
    if is_short and is_few and is_along_k:
        for groups, loads, warps in _CONFIGS:
            yield FewConfig(groups=groups, loads=loads, warps=warps)


def few_seconds(shape: ProductShape, config: FewConfig, machine: Machine) -> float:
    """Reading both factors, the few rows once for each block; a block waits for one step after the
    other."""
    rates = machine.few
    rows, wide = min(shape.m, shape.n), max(shape.m, shape.n)
    blocks = shape.batches * ceil(wide / config.columns)
    again = 2 * blocks * rows * shape.k
    moving = max(
        shape.bytes / (rates.read_share * machine.read_bandwidth),
        (shape.bytes + again) / rates.cache_bandwidth,
    )
    steps = ceil(shape.k / (config.loads * config.RUN * config.warps))
    return machine.launches.product_seconds + steps * rates.step_seconds + moving
