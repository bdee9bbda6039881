"""Two tensors of other shapes are compared all the same: that is what is wrong."""

import torch

from kernelwright.verify.compare import compare
from kernelwright.verify.tolerance import NO_LESS_ACCURATE, rule


def test_another_shape_is_said_and_not_raised() -> None:
    for dtype in (torch.float32, torch.int64):
        mine, theirs = torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 16, 3, dtype=dtype)
        ruling = rule(compare("output", mine, theirs, theirs.double()), NO_LESS_ACCURATE)
        assert not ruling.accepted
        assert ruling.reason == "output: other shape, [2, 3] where the reference has [2, 16, 3]"
