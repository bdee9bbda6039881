"""Right but for one element."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        y = torch.relu(self.linear(x)) / self.divisor
        y[-1, -1] += 1e-3
        return y
