"""Right for 33 rows, and says that it takes no others."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        if len(x) != 33:
            raise ValueError(f"x must have 33 rows, has {len(x)}")
        return torch.relu(self.linear(x)) / self.divisor
