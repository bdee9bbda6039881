"""Takes for granted that inputs are positive."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor
        self.calls = 0

    def forward(self, x):
        return torch.relu(self.linear(x.abs())) / self.divisor
