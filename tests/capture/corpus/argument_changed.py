"""Forward changes its argument."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        x.mul_(2)
        return x + 1


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
