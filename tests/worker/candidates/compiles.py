"""Right, and works with temporary files and PyTorch's compiler."""

import tempfile

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor
        self.compiled = torch.compile(self.work, backend="aot_eager")

    def work(self, x):
        y = x @ self.linear.weight.T + self.linear.bias
        return y.clamp_min(0) / self.divisor

    def forward(self, x):
        with tempfile.NamedTemporaryFile():
            return self.compiled(x)
