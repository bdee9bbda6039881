"""Elementwise arithmetic with its options, between tensors of several shapes and numbers."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor):
        total = torch.add(x, y, alpha=2.5) - torch.sub(x, y, alpha=3) * (1 - y)
        ratio = torch.div(x, y + 4, rounding_mode="floor") + torch.div(
            x, 0.5, rounding_mode="trunc"
        )
        rest = torch.remainder(x, 0.7) + torch.fmod(x, 0.7) + x // 0.3
        mixed = torch.lerp(x, total, 0.3) + torch.lerp(x, total, y)
        fused = torch.addcmul(x, total, y, value=0.5) + torch.addcdiv(x, total, y + 4, value=2)
        return total, ratio, rest, mixed, fused, 2 / (x.abs() + 1), -x


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.rand(FEATURES)]


def get_init_inputs():
    return []
