"""Slices along the first, a middle and the last dimension, by integers that may be negative."""

import torch
from torch import nn

ROWS = 7
PLANES = 5
COLUMNS = 24
PICKED = 11


class Model(nn.Module):
    def forward(self, x, w):
        index = 2 * (w > 0).long() - 3 * (w > 0.4).long()  # 0, 2 or -1
        rows = torch.index_select(x, 0, index.abs().int())
        square = index.view(1, -1)
        return rows, x[:, index], x[:, :, square]


def get_inputs():
    return [torch.rand(ROWS, PLANES, COLUMNS), torch.rand(PICKED)]


def get_init_inputs():
    return []
