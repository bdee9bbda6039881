"""Powers: exponents that PyTorch computes without calling pow, and others."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor):
        y = x.abs() + 0.5
        return x**2, x**3, y**0.5, y**-0.5, y**-1, y**-2, y**1, y**2.5, 2.0**x, y**x, n**2, n**3


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.arange(BATCH)]


def get_init_inputs():
    return []
