"""Convolutions of one tap, in one to three dimensions, with strides, transposed, in groups."""

import torch
from torch import nn
from torch.nn import functional

BATCH = 2
HEIGHT = 6
WIDTH = 7


class Model(nn.Module):
    def __init__(self, channels: int, results: int) -> None:
        super().__init__()
        self.plain = nn.Conv2d(channels, results, 1)
        self.unbiased = nn.Conv2d(channels, results, 1, bias=False, padding="same")
        self.strided = nn.Conv2d(channels, results, 1, stride=(2, 1))
        self.padded = nn.Conv2d(channels, results, 1, padding=1)
        self.grouped = nn.Conv2d(channels, 2 * channels, 1, groups=channels)
        self.transposed = nn.ConvTranspose2d(channels, results, 1)
        self.spread = nn.ConvTranspose2d(channels, results, 1, stride=2)
        self.line = nn.Conv1d(channels, results, 1)
        self.solid = nn.Conv3d(channels, results, 1)

    def forward(self, x: torch.Tensor):
        maps = (self.plain, self.unbiased, self.strided, self.padded, self.grouped)
        return (
            *(part(x) for part in (*maps, self.transposed, self.spread)),
            *(self.plain(x[0]), self.line(x[:, :, 0]), self.solid(x[:, :, None])),
            *(self.plain(x).relu() + x.mean(1, keepdim=True), self.plain(x.mT).flatten(1)),
            functional.conv2d(x, x[:1, :, :1, :1]),
        )


def get_inputs():
    return [torch.randn(BATCH, 4, HEIGHT, WIDTH)]


def get_init_inputs():
    return [4, 5]
