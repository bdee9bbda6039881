"""Numbers known at call time: a factor, an exponent, a bound, a sum of both."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: float, shift: float, count: int):
        y = x * scale + (shift * 2 - 1)
        return (
            y,
            x.abs() ** scale,
            torch.clamp(x, max=shift),
            F.leaky_relu(x, shift),
            count * x + 2 * scale,
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES), 2.5, 0.25, 3]


def get_init_inputs():
    return []
