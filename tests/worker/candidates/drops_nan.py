"""Right, but turns NaN into zero as fmaxf does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        return (
            torch.relu(
                torch.nan_to_num(self.linear(x), nan=0.0, posinf=torch.inf, neginf=-torch.inf)
            )
            / self.divisor
        )
