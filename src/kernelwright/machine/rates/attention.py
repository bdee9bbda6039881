"""Rates of attention."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """The model of attention by bytes of an element, ours (attention_sm90.cuh) and PyTorch's."""

    launch_seconds: Mapping[int, float]
    """Seconds of the launches and of blocks that begin."""
    flops: float
    """FLOP/s of both products of a head in float32, those of masked scores not counted."""
    narrow_causal_flops: float
    """FLOP/s of a causal head with at most 64 columns."""
    tile_seconds: float
    """Seconds of a tile of 128 rows in 16 bits, beside its steps."""
    step_seconds: Mapping[int, float]
    """Seconds of its step of 128 keys, by columns of a head."""
    causal_step_seconds: Mapping[int, float]
    """Seconds of that step where what comes later is cut off."""
    short_rows: Mapping[int, int]
    """Rows of a head of at most 64 columns up to which several blocks of 64 rows for each
    multiprocessor are fastest."""
    half_steps: float
    """How long two steps of 64 keys take in units of one of 128."""
    short_launch_seconds: Mapping[int, float]
    """Seconds of the launches where several blocks of 64 rows run at a time."""
    short_tile_seconds: Mapping[int, float]
    """Seconds in which a multiprocessor with several blocks is done with a tile of 64 rows, beside
    its steps."""
    short_step_seconds: Mapping[int, float]
    """Seconds of that tile's step of 64 keys of at most 64 columns."""
    library_launch_seconds: Mapping[int, float]
    """Seconds that PyTorch's call takes on the card beside its work."""
    library_flops: float
    """FLOP/s of its fastest backend in float32."""
    library_tile_seconds: float
    """Seconds of a tile of 128 rows in PyTorch's fastest backend in 16 bits."""
    library_step_seconds: Mapping[int, float]
    """Seconds of its step of 128 keys, by columns of a head."""
    library_causal_step_seconds: Mapping[int, float]
    """Seconds of that step where what comes later is cut off."""
    few_bandwidth: Mapping[int, float]
    """Bytes/s of keys and values where rows that have them in common are few."""
    library_few_bandwidth: float
    """Bytes/s of them in PyTorch's fastest backend in 16 bits."""
    mask_seconds: float
    """Seconds of a score that a mask of its own changes, beside all else, in ours."""
    library_mask_seconds: float
    """Seconds of the same score in PyTorch's fastest backend."""
