"""Rows of a norm times several factors, twice: three results, and one of two products."""

import torch
from torch import nn
from torch.nn import functional as F

M = 5
TEXTS = 2
K = 136
WIDE = 44


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.RMSNorm(K, eps=1e-6)
        self.second = nn.LayerNorm(K)
        self.parts = nn.ModuleList(nn.Linear(K, n, bias=n == 9) for n in (K, 9, 1))
        self.gate, self.up = (nn.Linear(K, WIDE, bias=False) for _ in range(2))
        self.to(DTYPE)

    def forward(self, x, scale):
        normed = self.first(x)
        q, k, v = (part(normed) for part in self.parts)
        x = x + q * scale
        normed = self.second(x)
        made = F.silu(self.gate(normed)) * self.up(normed)
        return made, k, v


DTYPE = torch.float32


def get_inputs():
    return [torch.rand(TEXTS, M, K), torch.rand(K)]


def get_init_inputs():
    return []
