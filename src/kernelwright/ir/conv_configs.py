"""How the convolution family computes: see kernels/conv/conv_tile.cuh and conv_direct.cuh."""

from dataclasses import dataclass
from enum import StrEnum


class Rounding(StrEnum):
    """What a convolution may round its operands to."""

    MEASURED_SIZES = "one fp16 product where cuDNN takes TF32, which has as many bits"
    """Only at the sizes for which that is known, and while the user allows TF32."""
    NONE = "as accurate as float32"
    SHORT = "operands of 16 bits"
    """An fp16 product carries them as they are."""


class RowTaps(StrEnum):
    """How taps along a row of the filter reach the tensor cores."""

    APART = "each tap is a copy"
    FOLDED = "a row's taps lie side by side in the planes"
    """The planes hold the taps of every output position, for few channels."""
    OVERLAPPING = "neighbouring pixels are the channels of one"
    """The planes hold every pixel once, the padding along the rows too."""


class ConvSchedule(StrEnum):
    """How the two warpgroups that multiply divide the work."""

    SHARED = "two warpgroups share a tile"
    ALTERNATE = "warpgroups take tiles in turn"
    """One stores what it has summed while the other multiplies."""


class ConvStore(StrEnum):
    """How a warp's channels leave for the result."""

    LINES = "32 positions of each at a time"
    ROWS = "all positions of one after the other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvConfig:
    """Tunables of the convolution as an implicit product on tensor cores.

    Output channels are the rows of a tile, positions its columns.
    """

    spatial: int
    """Dimensions that are convolved: 1, 2 or 3."""
    chunk: int
    """Channels of one tap that a copy brings: 16, 32, 48 or 64; 8: runs of pixels hold what all
    taps of a tile meet (conv_linear.cuh)."""
    planes: int
    """Planes of fp16 numbers: 1 for one product, 2 for three products of pairs."""
    parts: int
    """Parts of 64 output channels that a tile has: 1 or 2; 4 of one product, in turn."""
    width: int
    """Positions of a warpgroup: 64, 128 or 256."""
    schedule: ConvSchedule
    stages: int
    """Shared-memory buffers."""
    row_taps: RowTaps = RowTaps.APART
    patches: int = 0
    """Buffers for what all taps of a tile meet; 0: each tap is copied by itself."""
    patch_bytes: int = 0
    """Bytes of such a buffer."""
    store: ConvStore = ConvStore.LINES
    joined: int = 0
    """Dimensions, W first, whose phases are rows of the filter; of a transposed convolution."""
    outputs: int = 1
    """Neighbouring outputs along W that are rows of the filter; of a usual convolution."""
    fold_phases: int = 0
    """Phases of a position, each of which has its own totals over channels; 0: none has any."""

    @property
    def has_joined(self) -> bool:
        """Whether a channel has several rows of a tile."""
        return self.joined > 0 or self.outputs > 1

    @property
    def channels(self) -> int:
        """Output channels of a tile, or rows of channels and their phases."""
        return 64 * self.parts

    @property
    def has_runs(self) -> bool:
        """Whether its patches are runs of pixels, as they lie in the planes."""
        return self.chunk == 8

    @property
    def positions(self) -> int:
        """Output positions of a tile."""
        splits = self.schedule is ConvSchedule.SHARED and self.parts == 1
        return 2 * self.width if splits else self.width

    def __str__(self) -> str:
        scheme = {1: "one fp16 product", 2: "three fp16 products"}[self.planes]
        taps = f", {self.row_taps}" if self.row_taps is not RowTaps.APART else ""
        rows = "channels and phases" if self.joined else "channels"
        rows = f"channels of {self.outputs} outputs each" if self.outputs > 1 else rows
        shape = "runs of pixels" if self.has_runs else "patches"
        pixels = f"{self.patches} {shape} of {self.patch_bytes} bytes" if self.patches else "copies"
        rows_leave = ", channels leave one by one" if self.store is ConvStore.ROWS else ""
        return (
            f"{scheme} on tensor cores; tile {self.channels} {rows} x {self.positions} positions,"
            f" {self.schedule}; {self.chunk} channels a tap, {self.stages} stages,"
            f" {pixels}{taps}{rows_leave}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectConfig:
    """Tunables of the convolution on the CUDA cores, from the input as it lies."""

    channels: int
    """Output channels of a thread, at four neighbouring positions of a row."""

    def __str__(self) -> str:
        return f"float32 on the CUDA cores; {self.channels} channels x 4 positions a thread"
