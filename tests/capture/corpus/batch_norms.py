"""Batch norm: shared between two calls, without statistics, without parameters; its buffers."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shared = nn.BatchNorm2d(channels)
        self.stateless = nn.BatchNorm2d(channels, track_running_stats=False)
        self.bare = nn.BatchNorm2d(channels, affine=False, momentum=0.3)

    def forward(self, x: torch.Tensor):
        return self.bare(self.stateless(torch.relu(self.shared(self.shared(x)))))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
