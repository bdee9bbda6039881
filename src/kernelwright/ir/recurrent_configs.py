"""Tunables of recurrent layers in one launch."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig:
    """Tunables of recurrent layers: a cluster of blocks has a layer's direction for a slice."""

    cluster: int
    """Blocks: 1, 2, 4, 8 or 16."""
    batch: int
    """Rows of the batch in a slice: 8, 16 or 32."""
    inputs: int
    """Inputs of a layer at most, a multiple of 32."""
    stages: int
    """Steps of inputs on their way to a block."""
    planes: Literal[1, 2] = 2
    """fp16 numbers whose sum is a weight or a state: of two three products, as accurate as float32;
    of one for 16-bit weights, which it holds whole."""

    units: Literal[16, 32] = 16
    """Units of a block: one or two tiles of 64 rows."""

    ALL_REGISTERS: ClassVar[int] = 136
    """Registers of a thread that may hold all weights; with more, ptxas spills in some configs."""
    MOST_REGISTERS: ClassVar[int] = 160
    """Registers of a thread that may hold weights where others lie in shared memory."""

    @property
    def part(self) -> int:
        """Units of a cluster."""
        return self.cluster * self.units

    @property
    def depth(self) -> int:
        """Length of the sums of a step: inputs and hidden states."""
        return self.inputs + max(32, self.part)

    @property
    def _steps(self) -> tuple[int, int]:
        """Steps of 16 along K of a warpgroup, over inputs and over hidden states."""
        parts = 32 // self.units
        return self.inputs // 16 // parts, max(32, self.part) // 16 // parts

    @property
    def planes_away(self) -> int:
        """Planes of the inputs' weights that lie in shared memory."""
        inputs, hidden = self._steps
        if (inputs + hidden) * 4 * self.planes <= self.ALL_REGISTERS:
            return 0
        fits = (inputs + hidden * self.planes) * 4 <= self.MOST_REGISTERS
        return 1 if self.planes == 2 and fits else self.planes

    @property
    def weight_registers(self) -> int:
        """Registers of a thread that hold weights."""
        inputs, hidden = self._steps
        return 4 * (inputs * (self.planes - self.planes_away) + hidden * self.planes)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block (recurrent_problem.cuh)."""
        group = self.planes * self.batch * 16
        hidden = max(32, self.part)
        away = 2 * self.planes_away * self._steps[0] * 2048
        sums = self.batch * 64 * 4 if self.units == 16 else 0
        return (self.stages * self.inputs + 2 * hidden) // 8 * group + away + sums

    def __str__(self) -> str:
        blocks = "a block" if self.cluster == 1 else f"clusters of {self.cluster} blocks"
        products = "three fp16 tensor-core products" if self.planes == 2 else "fp16 tensor cores"
        return (
            f"all steps in one launch, weights on chip; {blocks} for each layer, direction and "
            f"{self.batch} rows of the batch; {products}"
        )
