"""A number and a flag that forward decides by: both are held fast."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(
        self, x: torch.Tensor, scale: float, reduce: bool, other: torch.Tensor | None, dim: int = 1
    ):
        if scale > 1:
            x = x * scale
        return x.sum(dim=dim) if reduce else x


def get_inputs():
    return [torch.randn(BATCH, FEATURES), 2.5, True, None]


def get_init_inputs():
    return []
