"""Rates of recurrent layers."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRates:
    """The model of recurrent layers, ours (recurrent_sm90.cuh) and cuDNN's."""

    launch_seconds: float
    """Seconds before the first step: planes of the inputs, weights to registers."""
    step_seconds: Mapping[int, float]
    """Seconds of a step on top of its products, by the blocks of a cluster."""
    k_seconds: Mapping[int, float]
    """Seconds of 16 elements along the sums of a step, by the rows of a slice."""
    one_plane: float
    """Factor on products of 16-bit weights, one in place of three."""
    two_tiles: float
    """Factor on products of blocks with two tiles of rows."""
    clusters: Mapping[int, int]
    """Clusters that run at one time, by their blocks."""
    library_lstm_seconds: float
    """Seconds of cuDNN's step of an LSTM layer's direction."""
    library_gru_seconds: float
    """Seconds of its step of a GRU layer's direction."""
    library_small_hidden: int
    """Most hidden units with which cuDNN takes all steps of a layer in one kernel, twice as many of
    plain RNN cells."""
    library_small_seconds: float
    """Seconds of a step of that kernel."""
