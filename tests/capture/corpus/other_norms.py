"""Group, instance, layer and RMS norms, and norms written by hand."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.group = nn.GroupNorm(2, channels)
        self.instance = nn.InstanceNorm2d(channels, affine=True)
        self.layer = nn.LayerNorm(width)
        self.rms = nn.RMSNorm(width)

    def forward(self, x: torch.Tensor):
        x = self.rms(self.layer(self.instance(self.group(x))))
        scale = torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-5)
        norm = torch.norm(x, p="fro") + x.abs().sum(dim=1, keepdim=True).mean()
        return F.normalize(x * scale, dim=1) / norm


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, WIDTH]
