"""Right."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        y = x @ self.linear.weight.T + self.linear.bias
        return y.clamp_min(0) / self.divisor
