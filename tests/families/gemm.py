"""A matrix product with a bias and an activation in its epilogue."""

import torch
from torch import nn

M = 64
K = 96
N = 80


class Model(nn.Module):
    def forward(self, a, b, bias):
        return torch.relu(torch.matmul(a, b) + bias)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N), torch.rand(N)]


def get_init_inputs():
    return []
