"""Attention: what a node for it says."""

from dataclasses import dataclass
from enum import StrEnum


class Masking(StrEnum):
    """What a mask does to scores."""

    NONE = "none"
    """There is none."""
    KEEP = "keep"
    """A score counts where the mask is true."""
    ADD = "add"
    """The mask is added to the scores."""


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q k^T * scale + mask) v over the keys of each row of q.

    Inputs: q (..., rows, depth), k (..., keys, depth), v (..., keys, width) of one element type,
    and a mask that broadcasts to (..., rows, keys), BOOL or of that type. What comes before
    broadcasts; k and v may have fewer heads, the last such dimension, than q: each then serves as
    many neighbouring heads. 16-bit numbers are computed with in float32.
    """

    scale: float | None
    """None: one over the root of the depth."""
    causal: bool
    """Row i has no keys after i."""
    masking: Masking
    empty_is_zero: bool
    """What a row gives whose scores are all -inf: zeros, and not NaN."""

    @property
    def input_count(self) -> int:
        """q, k, v, and a mask if there is one."""
        return 3 if self.masking is Masking.NONE else 4
