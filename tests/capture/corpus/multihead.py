"""nn.MultiheadAttention in a residual block."""

import torch
from torch import nn

BATCH = 3
LENGTH = 5
WIDTH = 8


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor):
        return self.norm(self.attention(x, x, x)[0] + x)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
