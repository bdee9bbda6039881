"""The largest and the smallest result of each row of products, batched and not."""

import torch
from torch import nn

BATCH = 8
M = 256
K = 64
N = 4096
WIDE = 65536


class Model(nn.Module):
    def forward(self, a, b, c, column, scale):
        largest = torch.relu((a @ b + column) * scale).amax(-1)
        return largest, (a @ c).amin(-1, keepdim=True)


def get_inputs():
    return [
        torch.rand(M, K),
        torch.rand(BATCH, K, N),
        torch.rand(K, WIDE),
        torch.rand(M, 1),
        torch.rand(M, 1),
    ]


def get_init_inputs():
    return []
