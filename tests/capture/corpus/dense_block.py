"""Features that grow by concatenation."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + 2 * i),
                nn.ReLU(),
                nn.Conv2d(channels + 2 * i, 2, 3, padding=1),
            )
            for i in range(3)
        )

    def forward(self, x: torch.Tensor):
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
