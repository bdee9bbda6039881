"""A linear layer of a few rows with a residual and an activation in its epilogue."""

import torch
from torch import nn

M = 5
K = 96
N = 80


class Model(nn.Module):
    def forward(self, a, b, bias, residual):
        return torch.relu(torch.nn.functional.linear(a, b, bias) + residual)


def get_inputs():
    return [torch.rand(M, K), torch.rand(N, K), torch.rand(N), torch.rand(M, N)]


def get_init_inputs():
    return []
