"""How long products take whose warpgroups have tiles of their own, in turns (Feed.TURNS)."""

from kernelwright.ir.product_configs import TensorCoreConfig
from kernelwright.machine import TurnRates, WarpgroupRates

_ROWS = 64
"""Rows of results that a warpgroup stores, one of each at a time."""
_STEP_PRODUCTS = 64
"""16-bit numbers of a row in a step."""


def turn_cycles(
    config: TensorCoreConfig,
    steps: int,
    waves: int,
    columns: int,
    extras: int,
    arriving: float,
    rates: WarpgroupRates,
    turns: TurnRates,
    *,
    vector: int,
    waits: bool,
) -> float:
    """Cycles of a multiprocessor for `waves` tiles of `steps` steps of K and of so many `columns`.

    A tile is stored while the next one is multiplied; the last one is not. `extras`: tensors of the
    result's size that join it; `arriving`: least cycles until the operands of a step have come;
    `vector`: results that a lane stores at once; `waits`: whether steps are too few to hide what a
    tile waits for, values that join it for one.
    """
    results = config.block_m * config.block_n
    # Of TF32 a step has half as many products, each of which takes twice as long.
    step = turns.share * results * _STEP_PRODUCTS / rates.cycle_products
    step *= turns.narrow if config.block_n <= 128 else 1.0
    fetched = 2 * _STEP_PRODUCTS * (config.block_m + config.block_n // config.cluster)
    fetching = fetched / turns.bytes * (turns.shared if config.cluster > 1 else 1.0)
    multiplying = steps * max(step, fetching, arriving) + turns.tile_cycles
    of_row = turns.result_cycles * (1.0 + turns.extra * extras)
    stored = config.block_m * min(columns, config.block_n) / _ROWS
    if waits:
        of_row *= turns.short
        multiplying += rates.short_tile_cycles
    storing = stored * of_row
    storing *= turns.shifted if columns % vector else 1.0
    between = waves * max(multiplying, (multiplying + storing) / 2)
    begin = turns.begin_cycles + (turns.cluster_cycles if config.cluster > 1 else 0.0)
    return begin + between + storing
