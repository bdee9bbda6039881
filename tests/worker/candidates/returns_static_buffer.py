"""Right, but every call returns the same memory."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        result = torch.relu(self.linear(x)) / self.divisor
        self.buffer = getattr(self, "buffer", None)
        if self.buffer is None or self.buffer.shape != result.shape:
            self.buffer = torch.empty_like(result)
        return self.buffer.copy_(result)
