"""Tensors that are plain attributes: one is a constant, one is replaced at each call."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def __init__(self, batch: int, features: int) -> None:
        super().__init__()
        self.scale = torch.full((features,), 2.0)
        self.memory = torch.zeros(batch, features)
        self.mix = nn.Linear(features, features)

    def forward(self, x: torch.Tensor):
        self.memory = torch.tanh(self.mix(x * self.scale) + self.memory)
        return self.memory + 1


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [BATCH, FEATURES]
