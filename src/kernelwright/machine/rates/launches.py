"""Rates of launches: what the host and the card need for one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRates:
    """What kernels cost whatever they do."""

    product_seconds: float
    """Seconds of a product of ours on top of what its tiles take."""
    next_seconds: float
    """Seconds of each kernel that comes before or after a product."""
    added_seconds: float
    """Seconds of a launch that replaces no call."""
    joined_seconds: float
    """Least seconds that joined tensors must save for their views to be worth it."""
    joined_run_bytes: int
    """Least bytes of a part between its neighbours: shorter ones are slow to write one by one."""
    joined_row_bytes: int
    """Least bytes where a product writes one of the parts: it stores rows in any case."""
    stage_bytes: float
    """Least bytes of tensors whose reduction, or whose memory format, pays for one more launch."""
    stage_elements: int
    """Least elements of a row of the first of two stages."""
    transposed_bytes: float
    """Least bytes of an operand that is copied because it lies transposed in memory."""
