"""A * s: the smallest problem with a run-time scalar."""

import torch
from torch import nn

M = 37
N = 129


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, s):
        return A * s


def get_inputs():
    return [torch.rand(M, N), 3.14]


def get_init_inputs():
    return []
