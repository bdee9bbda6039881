"""A @ B of sizes that 16 does not divide."""

import torch
from torch import nn

M = 40
K = 72
N = 56


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
