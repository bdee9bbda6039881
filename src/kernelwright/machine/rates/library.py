"""Rates of PyTorch's libraries: what cuBLAS and cuDNN take, and when they are left alone."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRate:
    """The library's large products in one arithmetic."""

    share: float
    """Share of the arithmetic's rate that they reach."""
    tile_seconds: float
    """Seconds of a tile of 128 x 128 on a multiprocessor, on top of its multiplications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRates:
    """The model of cuBLAS and cuDNN, and how much of ours must be better."""

    call_seconds: float
    """Seconds of a product on top of what its tiles take."""
    bandwidth_share: float
    """Share of the copy bandwidth that it reaches with products that memory limits."""
    products: Mapping[str, LibraryRate]
    """cuBLAS by arithmetic, a key of `Machine.flops`."""
    convolutions: LibraryRate
    """cuDNN's convolutions of fp32 by the rate of TF32."""
    unaligned_short: float
    """Share of the arithmetic's rate that cuBLAS reaches in 16 bits where rows of an operand or of
    the result are no multiples of 16 bytes."""
    short_margin: float
    """How many times faster ours has to be in 16 bits where the library takes less than
    `short_seconds`."""
    short_seconds: float
    """Seconds from which on the model of 16-bit products is trusted as it is."""
    margin: float
    """How many times faster a modelled product of ours on tensor cores has to be."""
    known_seconds: float
    """Least seconds of the library's product for the model of ours on tensor cores to be trusted:
    shorter ones are launches and latencies."""
    tf32_channels: int
    """Fewest channels on both sides of a small float32 convolution of two dimensions that cuDNN
    computes in TF32 all the same."""
    tf32_odd_channels: int
    """Fewest channels of the operand of such a one of one tap on maps of no multiple of four."""
    tf32_strided_channels: int
    """Fewest channels of the operand of one of one tap with strides."""
    tf32_bytes: float
    """Bytes of operand and result from which that is known."""
    tf32_first_taps: int
    """Fewest taps of a strided float32 convolution of an image, a network's first one, that cuDNN
    computes in TF32."""
    tf32_first_channels: int
    """Most channels of that image."""
    tf32_first_results: int
    """Fewest channels of its result."""
    cut_seconds: float
    """Seconds of the host for a call between launches of ours, which are one native call without
    it."""
    k_seconds: float
    """Least seconds of a float32 product of few tiles for each step along K."""
    biased_k_seconds: float
    """Seconds of a step of one along K where a linear layer in float32 adds its bias."""
    biased_rows: int
    """Rows and columns from which on that is so."""
    known_k: int
    """Most of these steps: longer ones are cut among blocks."""
    known_thin_seconds: float
    """Least seconds of the library's product for the model of ours with few rows to be trusted."""
    channels_last_channels: int
    """Fewest channels of a float32 input of a convolution: with fewer, cuDNN mostly computes in
    float32 on contiguous operands, and in TF32 on channels-last ones: less accurately than the
    reference."""
    channels_last_few: int
    """Channels of such an input of three dimensions that suffice for a result of few channels:
    TF32 on all operands."""
    channels_last_few_results: int
    """Most channels of that result."""
    channels_last_taps: int
    """Most elements of a transposed filter of three dimensions with which cuDNN gains."""
