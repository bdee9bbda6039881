"""Products of a batch that stands between their rows and columns, and what joins them there."""

import torch
from torch import nn

M = 48
K = 80
N = 64


class Model(nn.Module):
    def forward(self, a, b, bias, scale, residual):
        return torch.einsum("bmk,bkn->mbn", a, b) * scale + bias + residual


def get_inputs():
    a, b = torch.rand(2, M, K), torch.rand(2, K, N)
    return [a, b, torch.rand(2, N), torch.rand(M, 1, 1), torch.rand(M, 2, N)]


def get_init_inputs():
    return []
