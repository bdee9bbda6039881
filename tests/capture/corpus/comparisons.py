"""Comparisons, logic, masks and choices."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor):
        larger = (x > y) | (x.abs() <= 0.3) & (x != 1.0)
        masked = x.masked_fill(larger, float("-inf"))
        chosen = torch.where(x >= 0, x, y) + torch.where(larger, 1.0, x)
        both = torch.logical_and(x > 0, y) ^ torch.logical_not(x < y)
        return (
            larger,
            masked,
            chosen,
            both,
            ~larger,
            torch.isnan(masked),
            torch.isinf(masked),
            x == y,
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.rand(FEATURES)]


def get_init_inputs():
    return []
