"""A diagonal matrix, given as its diagonal, times a full matrix."""

import torch
from torch import nn

N = 4096
M = 4096


class Model(nn.Module):
    def forward(self, diagonal: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(diagonal) @ b


def get_inputs():
    return [torch.rand(N), torch.rand(N, M)]


def get_init_inputs():
    return []
