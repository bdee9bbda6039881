"""Expressions over elements: broadcasts, lines, other orders of dimensions, types, scalars."""

import torch
from torch import nn
from torch.nn import functional as F

ROWS = 4096
COLUMNS = 16384
SMALL = 96


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(COLUMNS))
        self.column = nn.Parameter(torch.ones(ROWS, 1))

    def forward(self, x, half, image, mask, count, factor: float):
        activated = F.gelu(x * self.scale + 1) * factor
        lines = torch.tanh(x + self.column) - F.silu(x)
        turned = image.permute(0, 2, 3, 1) * 2 + torch.ones_like(image).permute(0, 2, 3, 1)
        chosen = torch.where(mask, x, -x).clamp(-2, 2)
        narrow = half.exp().to(torch.float32) + 0.5
        whole = (count // 3 + count % 7).to(torch.int32)
        triangle = torch.tril(x[:, :ROWS]) * 3
        strided = x[:, ::2] * 2
        return activated, lines, turned, chosen, narrow, whole, triangle, strided


def get_inputs():
    return [
        torch.rand(ROWS, COLUMNS),
        torch.rand(ROWS, COLUMNS, dtype=torch.float16),
        torch.rand(8, SMALL, 56, 56),
        torch.rand(ROWS, COLUMNS) > 0.5,
        torch.arange(ROWS * SMALL).reshape(ROWS, SMALL),
        0.5,
    ]


def get_init_inputs():
    return []
