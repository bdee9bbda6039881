"""Functions whose results are rounded to 16 bits at once."""

import torch
from torch import nn

ROWS = 40
COLUMNS = 33


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x * -32), nn.functional.silu(x * 32)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
