"""Tunables of recurrent layers in one launch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Exchange(StrEnum):
    """How the blocks of a cluster give each other their units' states after a step."""

    COPIES = "copies"
    """A bulk copy of all of them to each block."""
    STORES = "stores"
    """Asynchronous stores of 16 bytes from registers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig:
    """Tunables of recurrent layers: a cluster of blocks has a layer's direction for a slice."""

    cluster: int
    """Blocks, with 16 units each: 1, 2, 4, 8 or 16."""
    batch: int
    """Rows of the batch in a slice: 8, 16 or 32."""
    inputs: int
    """Inputs of a layer at most, a multiple of 32."""
    stages: int
    """Steps of inputs on their way to a block."""
    exchange: Exchange

    UNITS: ClassVar[int] = 16
    PLANES: ClassVar[int] = 2
    """fp16 numbers whose sum is a weight or a state: three products, as accurate as float32."""

    @property
    def part(self) -> int:
        """Units of a cluster."""
        return self.cluster * self.UNITS

    @property
    def depth(self) -> int:
        """Length of the sums of a step: inputs and hidden states."""
        return self.inputs + max(32, self.part)

    @property
    def holds_low(self) -> bool:
        """Whether registers hold the low planes of the inputs' weights, too."""
        return self.depth // 8 * self.PLANES <= 136

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block (recurrent_problem.cuh)."""
        group = self.PLANES * self.batch * 16
        hidden = max(32, self.part)
        low = 0 if self.holds_low else self.inputs // 16 * 2048
        sums = 2 * self.batch * 68 * 4
        return (self.stages * self.inputs + 2 * hidden) // 8 * group + low + sums

    def __str__(self) -> str:
        blocks = "a block" if self.cluster == 1 else f"clusters of {self.cluster} blocks"
        return (
            f"all steps in one launch, weights on chip; {blocks} for each layer, direction and "
            f"{self.batch} rows of the batch; three fp16 tensor-core products; states by "
            f"{self.exchange}"
        )
