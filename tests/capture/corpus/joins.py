"""Concatenation, stacking, repetition, padding, rolling."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        joined = torch.cat([x, x.relu(), x[:1]], dim=0)
        stacked = torch.stack([x, 2 * x], dim=1)
        return (
            joined + 1,
            stacked,
            x.repeat(2, 3),
            F.pad(x, (1, 2), value=0.5),
            x.roll(1, dims=0),
            x.tril(),
            x.triu(1),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
