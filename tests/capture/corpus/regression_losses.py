"""Losses between predictions and targets of the same shape."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor):
        first = F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.l1_loss(x, y, reduction="sum")
        second = F.huber_loss(x, y) + F.hinge_embedding_loss(x, torch.sign(y))
        third = F.triplet_margin_loss(x, y, x + y) + F.cosine_similarity(x, y).mean()
        return first, second, third, torch.mean(torch.clamp(1 - x * y, min=0))


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
