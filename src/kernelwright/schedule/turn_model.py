"""How long products take whose warpgroups have tiles of their own, in turns (Feed.TURNS)."""

from kernelwright.ir.configs import TensorCoreConfig
from kernelwright.machine import WarpgroupRates

_TILE = 64 * 128
"""Results of the tile that `turn_tile_cycles` is the time of."""
_CYCLE_PRODUCTS = 2048
"""16-bit multiplications of a multiprocessor's tensor cores in a cycle."""


def turn_cycles(config: TensorCoreConfig, steps: int, waves: int, rates: WarpgroupRates) -> float:
    """Cycles of a multiprocessor for `waves` tiles of `steps` steps of K.

    A tile is stored while the next one is multiplied; the last one is not.
    """
    results = config.block_m * config.block_n
    step = rates.turn_share * results * config.BLOCK_K / _CYCLE_PRODUCTS
    fetched = 2 * config.BLOCK_K * (config.block_m + config.block_n // config.cluster)
    multiplying = steps * max(step, fetched / rates.turn_bytes)
    storing = results / _TILE * rates.turn_tile_cycles
    between = waves * max(multiplying, (multiplying + storing) / 2)
    return rates.turn_begin_cycles + between + storing
