"""Writes the result into the input."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        result = torch.relu(self.linear(x)) / self.divisor
        return x.copy_(result)
