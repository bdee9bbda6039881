"""Random numbers drawn in forward."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        noise = torch.randn_like(x) * 0.1 + torch.rand(x.shape, device=x.device)
        return (
            x + noise,
            torch.bernoulli(torch.full_like(x, 0.5)),
            torch.randint(0, 5, (3,), device=x.device),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
