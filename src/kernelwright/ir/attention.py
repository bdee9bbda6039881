"""Attention: what a node for it says."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

_Item = TypeVar("_Item")


class Masking(StrEnum):
    """What a mask does to scores."""

    NONE = "none"
    """There is none."""
    KEEP = "keep"
    """A score counts where the mask is true."""
    ADD = "add"
    """The mask is added to the scores."""


class Weighing(StrEnum):
    """What scores of a row become before they weigh values."""

    SOFTMAX = "softmax"
    """Exponentials that are shares of their sum."""
    RELU = "relu"
    """Themselves where they are positive, else 0: also where a mask keeps none."""


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q k^T * scale + mask) v over the keys of each row of q.

    Inputs: q (..., rows, depth), k (..., keys, depth), v (..., keys, width) of one element type,
    and a mask that broadcasts to (..., rows, keys), BOOL or of that type. What comes before
    broadcasts; k and v may have fewer heads, the last such dimension, than q: each then serves as
    many neighbouring heads. A mask of fewer batches, the first of four dimensions, serves these in
    turns. 16-bit numbers are computed with in float32.
    """

    scale: float | None
    """None: one over the root of the depth."""
    causal: bool
    """Row i has no keys after i."""
    masking: Masking
    empty_is_zero: bool
    """What a row gives whose scores are all -inf: zeros, and not NaN."""
    weighing: Weighing = Weighing.SOFTMAX
    order: tuple[int, ...] | None = None
    """Dimension i of the result is dimension order[i] of (..., rows, width). None: as it is."""

    @property
    def input_count(self) -> int:
        """q, k, v, and a mask if there is one."""
        return 3 if self.masking is Masking.NONE else 4

    def rows_last(self, result: Sequence[_Item]) -> tuple[_Item, ...]:
        """What is said of each dimension of the result, in the order (..., rows, width)."""
        if self.order is None:
            return tuple(result)
        return tuple(result[self.order.index(d)] for d in range(len(result)))
