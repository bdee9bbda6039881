"""Rolls of any dimensions by any shifts, and views that are copied with them."""

import torch
from torch import nn

ROWS = 3
PLANES = 5
COLUMNS = 24


class Model(nn.Module):
    def forward(self, x):
        one, other, last = (x.roll(by, dim) for dim, by in enumerate([1, -2, 7]))
        turned = x.roll([2, -1], [0, 1]).transpose(0, 1).roll(x.shape[1] // 2, 0).flatten(1)
        more = x.transpose(1, 2).roll([1, 3], [1, 0]) + 1
        return one, other, last, x.roll(5) + 0, turned, more


def get_inputs():
    return [torch.rand(ROWS, PLANES, COLUMNS)]


def get_init_inputs():
    return []
