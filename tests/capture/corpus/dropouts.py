"""Dropout of elements and of channels: the same random numbers as in eager mode."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)
        self.drop_channels = nn.Dropout2d(0.3)
        self.never = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor):
        return self.drop_channels(self.drop(x) + 1) * self.never(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
