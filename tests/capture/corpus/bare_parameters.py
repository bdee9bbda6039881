"""Parameters of the module itself, among them one of no dimensions and one that broadcasts."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.shift = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor):
        return torch.sigmoid(x * self.scale + self.shift) * x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
