"""Rows of float16 and bfloat16, with what stands before and after their totals."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8192, dtype=torch.float16))

    def forward(self, half, brain, residual):
        added = half + residual
        root = torch.rsqrt(added.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (
            *(added, (added.float() * root).half() * self.weight),
            *(torch.softmax(brain, -1), F.layer_norm(brain, (8192,)), brain.sum(0)),
            F.gelu(half).amax(-1),
        )


def get_inputs():
    return [
        torch.rand(2048, 8192, dtype=torch.float16),
        torch.rand(2048, 8192, dtype=torch.bfloat16),
        torch.rand(2048, 8192, dtype=torch.float16),
    ]


def get_init_inputs():
    return []
