"""Configurations of recurrent layers, and how long these take in ours and in the library."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

from kernelwright.ir.recurrence import Cell, Recurrent
from kernelwright.ir.recurrent_configs import RecurrentConfig
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine, RecurrentRates

MOST_LAYERS = 32
"""Layers and directions that a launch takes; `MAX_LAYERS` in kernels/recurrent."""
_CLUSTERS = (1, 2, 4, 8, 16)
_STAGES = (3, 2)
_STATIC_SHARED = 1024
"""Bytes of static shared memory, as ptxas says: barriers, and what aligns the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSizes:
    """Sizes of a stack at capture."""

    kind: Recurrent
    steps: int
    batch: int
    inputs: int
    hidden: int
    dtype: DType

    @property
    def planes(self) -> Literal[1, 2]:
        """fp16 numbers that hold a weight."""
        return 2 if self.dtype is DType.F32 else 1

    @property
    def lanes(self) -> int:
        """Layers and directions."""
        return self.kind.layers * self.kind.directions

    @property
    def weights(self) -> int:
        """Multiply-adds of one step and row of the batch."""
        above = self.kind.directions * self.hidden
        read = self.inputs + (self.kind.layers - 1) * above + self.kind.layers * self.hidden
        return self.kind.cell.gates * self.hidden * self.kind.directions * read

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * self.steps * self.batch * self.weights


def recurrent_sizes(kind: Recurrent, data: TensorType, state: TensorType) -> RecurrentSizes:
    """The sizes of a stack that begins with `data` and with states of the type `state`."""
    first, second, inputs = (dim.hint for dim in data.shape)
    steps, batch = (second, first) if kind.batch_first else (first, second)
    return RecurrentSizes(
        kind=kind,
        steps=steps,
        batch=batch,
        inputs=inputs,
        hidden=state.shape[2].hint,
        dtype=data.dtype,
    )


def why_none(sizes: RecurrentSizes, machine: Machine) -> str | None:
    """Why no configuration holds the weights of a stack on chip; None where one does."""
    if machine.recurrent is None:
        return "our kernel needs clusters and warpgroup products, which this card has not"
    if sizes.kind.cell is Cell.RNN_RELU and sizes.dtype is DType.F32:
        return "states of ReLU cells have no bound, and float32 as pairs of fp16 needs one"
    if sizes.lanes > MOST_LAYERS:
        return f"it has more than {MOST_LAYERS} layers, directions counted"
    most = _CLUSTERS[-1] * _units(sizes)[-1]
    if sizes.hidden > most:
        return f"it has more than {most} hidden units, whose weights no cluster of blocks holds"
    if sizes.inputs < 1 or not any(_fitting(sizes, machine)):
        return f"no cluster of blocks holds the weights of its {sizes.inputs} inputs"
    return None


def recurrent_configs(sizes: RecurrentSizes, machine: Machine) -> tuple[RecurrentConfig, ...]:
    """Those that hold the weights, best first by the model."""
    found = _fitting(sizes, machine)
    return tuple(sorted(found, key=lambda config: recurrent_seconds(sizes, config, machine)))


def _units(sizes: RecurrentSizes) -> tuple[Literal[16, 32], ...]:
    """Units of a block. Two planes of 32 fill the card's memory before clusters of 16 do."""
    return (16,) if sizes.planes == 2 else (16, 32)


def _fitting(sizes: RecurrentSizes, machine: Machine) -> Iterator[RecurrentConfig]:
    room = machine.shared_memory_per_block - _STATIC_SHARED
    for units in _units(sizes):
        cluster = next((count for count in _CLUSTERS if count * units >= sizes.hidden), None)
        if cluster is None:
            continue
        above = sizes.kind.directions * cluster * units if sizes.kind.layers > 1 else 0
        inputs = ceil(max(sizes.inputs, above) / 32) * 32
        for batch in (8, 16, 32):
            each = (
                RecurrentConfig(
                    cluster=cluster,
                    batch=batch,
                    inputs=inputs,
                    stages=stages,
                    planes=sizes.planes,
                    units=units,
                )
                for stages in _STAGES
            )
            fits = (
                it
                for it in each
                if it.shared_bytes <= room and it.weight_registers <= it.MOST_REGISTERS
            )
            yield from (it for it in (next(fits, None),) if it is not None)


def rates_of(machine: Machine) -> RecurrentRates:
    """The rates of a card that has configurations."""
    assert machine.recurrent is not None, f"{machine.name} has no recurrent layers by warpgroups"
    return machine.recurrent


def recurrent_seconds(sizes: RecurrentSizes, config: RecurrentConfig, machine: Machine) -> float:
    """Seconds of the launch: its steps, one after the other, as often as clusters take turns."""
    rates = rates_of(machine)
    products = rates.k_seconds[config.batch]
    products *= rates.one_plane if config.planes == 1 else 1
    products *= rates.two_tiles if config.units == 32 else 1
    step = rates.step_seconds[config.cluster] + config.depth / 16 * products
    slices = ceil(sizes.batch / config.batch)
    together = rates.clusters[config.cluster]
    if sizes.kind.directions == 2:
        turns = float(sizes.kind.layers * ceil(2 * slices / together))
        return rates.launch_seconds + turns * sizes.steps * step
    turns = ceil(slices * sizes.kind.layers / together)
    lag = min(sizes.kind.layers, together) - 1
    return rates.launch_seconds + (turns * sizes.steps + lag) * step


def library_seconds(sizes: RecurrentSizes, machine: Machine) -> float:
    """Seconds of cuDNN's layers: kernels for each step, or one for all of few units."""
    rates = rates_of(machine)
    cell, steps = sizes.kind.cell, sizes.steps * sizes.kind.layers
    small = rates.library_small_hidden * (2 if cell.gates == 1 else 1)
    if sizes.hidden <= small:
        return steps * rates.library_small_seconds
    # Plain cells of more units were not timed: as long as the quickest that was.
    each = {Cell.GRU: rates.library_gru_seconds}.get(cell, rates.library_lstm_seconds)
    return steps * sizes.kind.directions * each


def loop_seconds(sizes: RecurrentSizes, machine: Machine) -> float:
    """Seconds of a product and a launch for the cell for each step: the least that a loop takes."""
    launches = machine.launches.product_seconds + machine.launches.next_seconds
    return sizes.steps * launches + sizes.flops / machine.flops["fp16x3"]
