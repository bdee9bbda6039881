"""Scales its input in place, and back only nearly."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        result = torch.relu(self.linear(x)) / self.divisor
        x.mul_(1.0001)
        return result
