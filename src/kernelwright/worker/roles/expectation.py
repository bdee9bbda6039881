"""What the reference gives for one case: what a candidate's results are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.verify.cases import Case
from kernelwright.verify.oracle import OracleRun, Rounded
from kernelwright.worker.process.handover import Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the latest case should give."""

    case: Case
    effects: Mapping[str, Tensor]
    oracle: OracleRun | None
    """None where it is too large to be kept: then it is run piece by piece."""
    random: str
    """As in `RunFacts`."""
    elements: int
    """Elements of all arguments."""
    flops: int
    """Multiply-adds of the oracle, twice; 0 where it is None."""


def rounded_as_by(expected: Expectation) -> Rounded:
    """What the reference's operators round, as far as its settings tell."""
    allowed = expected.flops and torch.backends.cudnn.allow_tf32
    return Rounded.SHORTENED if allowed else Rounded.GIVEN


def is_comparable(header: Handed, effects: Mapping[str, Tensor]) -> bool:
    """Whether a result has the form of what is expected under its name."""
    tensor = effects.get(header.name)
    form = tensor is not None and (str(tensor.dtype), tuple(tensor.shape))
    return form == (header.dtype, header.shape)
