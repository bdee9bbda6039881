"""How long products take whose warpgroups have tiles of their own, in turns (Feed.TURNS)."""

from kernelwright.ir.configs import TensorCoreConfig
from kernelwright.machine import WarpgroupRates

_ROWS = 64
"""Rows of results that a warpgroup stores, one of each at a time."""
_RUN = 4
"""Results that a lane stores at once: `RUN`, gemm_sm90_store.cuh."""


def turn_cycles(
    config: TensorCoreConfig, steps: int, waves: int, columns: int, rates: WarpgroupRates
) -> float:
    """Cycles of a multiprocessor for `waves` tiles of `steps` steps of K, of a result that has so
    many columns.

    A tile is stored while the next one is multiplied; the last one is not.
    """
    results = config.block_m * config.block_n
    step = rates.turn_share * results * config.BLOCK_K / rates.cycle_products
    fetched = 2 * config.BLOCK_K * (config.block_m + config.block_n // config.cluster)
    multiplying = steps * max(step, fetched / rates.turn_bytes)
    storing = results / _ROWS * rates.turn_result_cycles
    storing *= rates.turn_shifted if columns % _RUN else 1.0
    between = waves * max(multiplying, (multiplying + storing) / 2)
    return rates.turn_begin_cycles + between + storing
