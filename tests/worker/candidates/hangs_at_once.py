"""Sleeps in its first call."""

import time

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.divisor = divisor

    def forward(self, x):
        time.sleep(20)
        raise TimeoutError  # by then nobody has the memory of x any more
