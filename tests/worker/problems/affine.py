"""relu(x @ W + b) / divisor."""

import torch
from torch import nn

BATCH = 33
FEATURES = 48


class Model(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(self.linear(x)) / self.divisor


def get_inputs():
    return [torch.rand(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES, 2.0]
