"""Right the first time, wrong on every further call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return torch.relu(self.linear(x)) / self.divisor + 0.01 * (self.calls - 1)
