"""Products of one left factor, each with a right factor and a bias: one kernel."""

import torch
from torch import nn

M = 1600
K = 768
N = 512


class Model(nn.Module):
    def forward(self, x, a, b, c, bias, other):
        # The step that the biases share says that they have one size.
        first, second = torch.matmul(x, a) + bias, torch.matmul(x, b) + other
        return first, second, torch.matmul(x, c) + bias, bias + other


DTYPE = torch.float32


def get_inputs():
    matrices = [torch.rand(K, N), torch.rand(K, N), torch.rand(K, N)]
    return [torch.rand(M, K), *matrices, torch.rand(N), torch.rand(N)]


def get_init_inputs():
    return []
