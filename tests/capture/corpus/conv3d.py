"""Convolutions over 3 dimensions: strided, padded, dilated, grouped."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 4
DEPTH = 6
HEIGHT = 7
WIDTH = 9


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.plain = nn.Conv3d(channels, 6, 3, padding=1)
        self.grouped = nn.Conv3d(6, 6, 3, stride=2, padding=2, dilation=2, groups=3, bias=False)

    def forward(self, x: torch.Tensor):
        return self.grouped(torch.relu(self.plain(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
