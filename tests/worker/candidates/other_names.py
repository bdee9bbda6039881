"""The same weights under another name: right values, but no drop-in for a checkpoint."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.dense = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(self.dense(x)) / self.divisor
