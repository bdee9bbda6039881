"""How long products take whose warpgroups have tiles of their own, in turns (Feed.TURNS)."""

from kernelwright.ir.configs import TensorCoreConfig
from kernelwright.machine import WarpgroupRates

_ROWS = 64
"""Rows of results that a warpgroup stores, one of each at a time."""


def turn_cycles(config: TensorCoreConfig, steps: int, waves: int, rates: WarpgroupRates) -> float:
    """Cycles of a multiprocessor for `waves` tiles of `steps` steps of K.

    A tile is stored while the next one is multiplied; the last one is not.
    """
    results = config.block_m * config.block_n
    step = rates.turn_share * results * config.BLOCK_K / rates.cycle_products
    fetched = 2 * config.BLOCK_K * (config.block_m + config.block_n // config.cluster)
    multiplying = steps * max(step, fetched / rates.turn_bytes)
    storing = results / _ROWS * rates.turn_result_cycles
    between = waves * max(multiplying, (multiplying + storing) / 2)
    return rates.turn_begin_cycles + between + storing
