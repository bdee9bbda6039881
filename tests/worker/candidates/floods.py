"""Right, and prints 20 MB."""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        sys.stdout.write("x" * 20_000_000)
        return torch.relu(self.linear(x)) / self.divisor
