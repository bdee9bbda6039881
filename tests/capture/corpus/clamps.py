"""Clamps by numbers and by tensors, maxima and minima."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor):
        return (
            *(
                x.clamp(-0.5, 0.5),
                x.clamp(min=0.1),
                x.clamp(max=0.2),
                x.clamp_min(0),
                x.clamp_max(1),
            ),
            *(torch.clamp(x, y - 1, y), torch.maximum(x, y), torch.minimum(x, y), torch.max(x, y)),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.rand(FEATURES)]


def get_init_inputs():
    return []
