"""The records of a card for convolutions: ours on tensor cores, and cuDNN's.

A field says what a number means and in which unit. Where a number was measured stands in the file
of the card, beside the number.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCycles:
    """Cycles of a warpgroup that stores its part of a convolution's tile."""

    waiting: float
    """For each element of the part, whether it is there or not."""
    moving: float
    """For each that is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryConvolution:
    """The library's convolutions of a kind: both times are added."""

    flops: float
    """FLOP/s."""
    bandwidth: float
    """Bytes of operand and result a second, each counted once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionRates:
    """The model of convolutions on tensor cores (conv_sm90.cuh) and of cuDNN's."""

    clock: float
    """Hertz of multiprocessors whose tensor cores are busy."""
    product_share: float
    """Factor on the cycles of a tile's products."""
    patch_products: float
    """Factor on them where taps are shifts in a patch."""
    row_cycles: Mapping[tuple[int, int], float]
    """Cycles of a multiprocessor for one pixel of a copy, by planes and channels."""
    deep_rows: float
    """Factor on them in three dimensions."""
    overlapping_rows: float
    """Factor on overlapping pixels, a position for each output."""
    copy_bytes: float
    """Bytes a cycle of patches and filters that reach a multiprocessor."""
    runs: StoreCycles
    """Tiles whose positions lie side by side in the result and are aligned."""
    rows: StoreCycles
    """Tiles whose channels leave one by one, anywhere."""
    shared: Mapping[int, StoreCycles]
    """Tiles that share sectors, by a warpgroup's positions."""
    unaligned: StoreCycles
    """Other tiles."""
    runs_of_pixels: StoreCycles
    """Tiles whose outputs move together on the way out (conv_linear.cuh)."""
    pairs: StoreCycles
    """Tiles of joined phases, two a row, that leave as aligned pairs."""
    phases: StoreCycles
    """Tiles of joined phases that leave otherwise."""
    operation: float
    """Cycles of a warpgroup for each element and instruction of long functions."""
    joined_outputs: float
    """Factor on all of a convolution whose neighbouring outputs are joined."""
    scattered: StoreCycles
    """Tiles of phases that write every second element of a row, or fewer."""
    window_rows: float
    """Cycles of a row of less than 128 bytes that is copied for windows of results, whose pixels
    lie apart, by those of a row whose pixels are neighbours."""
    window_copy: float
    """Cycles of a copy of such rows besides them."""
    finished: float
    """Cycles of a warpgroup for each element of its part that is reduced before it is stored."""
    row_program: float
    """Cycles besides for a program over channels: its maximum, exponential and sum."""
    moments: float
    """Cycles besides for an element whose channel has moments."""
    joined_moments: float
    """Such cycles where each row of the filter is a joined phase, which not all positions have."""
    store_bandwidth: float
    """Bytes a second that results are stored at, at most."""
    parted_bandwidth: float
    """Bytes a second that results are stored at whose channels begin inside a sector of memory."""
    shared_bandwidth: float
    """Bytes a second that they are stored at by tiles that share sectors."""
    plane_bandwidth: float
    """Bytes a second of the kernel that writes planes, read and written."""
    turned_elements: float
    """Elements a second, padding counted, that it writes at most."""
    found_elements: float
    """Elements a second where each pixel's column is looked for, since padding is written."""
    folded_elements: float
    """Elements a second where a row's taps become channels."""
    direct_share: float
    """Share of the CUDA cores' float32 rate that the convolution on them reaches."""
    filter_seconds: float
    """Seconds in which a block of it reads, or writes, 1024 elements of an output channel's filter
    or pairs of them."""
    library: Mapping[str, LibraryConvolution]
    """cuDNN at its best on contiguous operands: "tf32", "deep" (TF32 in three dimensions),
    "strided" (TF32 transposed), "fp32", "grouped" (float32 in groups), "short" (16 bits) and
    "short_few" (of channels that are no multiple of eight)."""
    channels_last: Mapping[str, LibraryConvolution]
    """cuDNN in TF32 on channels-last operands: "tf32", "deep", "strided"; strided of fewer than
    32 channels, "thin", and "odd" where they are no multiple of four."""
    library_tiles: Mapping[tuple[int, int], float]
    """Share of its rate in TF32 that it reaches with tiles of so many positions and channels, where
    they fill the card."""
    turning_bandwidth: float
    """Bytes a second, read and written, at which an operand becomes channels-last."""
    margin: float
    """How many times faster than the library ours has to be by these models."""
    one_tap: float
    """How many times its modelled time a product takes on CUDA cores that is a convolution of one
    tap: of few channels, in a network."""
    doubt: float
    """How much slower than the library's best ours may be alone, for whole plans to be compared."""
