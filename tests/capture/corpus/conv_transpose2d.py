"""Transposed convolution over 2 dimensions, then a norm and an activation."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 4
HEIGHT = 7
WIDTH = 9


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(
            channels, 6, 3, stride=2, padding=1, output_padding=1, groups=2
        )
        self.norm = nn.BatchNorm2d(6)

    def forward(self, x: torch.Tensor):
        return torch.tanh(self.norm(self.up(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
