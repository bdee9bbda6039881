"""Pooling in one to three dimensions, with expressions around it, and a filter for each channel."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.wide = nn.Conv2d(64, 64, 7, stride=2, padding=3, groups=64, bias=False)

    def forward(self, line, image, volume, half):
        return (
            *(F.max_pool1d(line, 4), F.avg_pool1d(line, 8, stride=1, padding=4)),
            *(F.max_pool1d(line, 8, stride=1, padding=4, dilation=3),),
            *(F.max_pool2d(image, 2), F.max_pool2d(image, 4, stride=1, padding=1, dilation=1)),
            *(F.avg_pool2d(image, 11), F.avg_pool2d(image, 3, stride=2, padding=1, ceil_mode=True)),
            *(F.adaptive_avg_pool2d(image, 7), F.relu(F.max_pool2d(torch.tanh(image), 2)) + 1),
            *(F.max_pool3d(volume, 3, stride=2, padding=1), F.avg_pool3d(volume, 3, stride=2)),
            *(F.max_pool2d(half, 2), F.avg_pool2d(half, 3, padding=1)),
            *(F.relu(self.filters(image)), self.wide(image)),
        )


def get_inputs():
    return [
        torch.rand(64, 192, 65536),
        torch.rand(16, 64, 256, 256),
        torch.rand(16, 32, 64, 64, 64),
        torch.rand(16, 64, 256, 256, dtype=torch.float16),
    ]


def get_init_inputs():
    return []
