"""Sums, means, extrema and their places, norms, variances."""

import torch
from torch import nn

BATCH = 4
ROWS = 5
COLUMNS = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        largest, place = x.max(dim=1)
        return (
            *(
                x.sum(),
                x.sum(dim=1),
                x.sum(dim=(0, 2), keepdim=True),
                x.mean(dim=-1),
                x.mean(),
                x.prod(1),
            ),
            *(largest, place, x.min(dim=2)[0], x.amax(dim=0), x.argmax(dim=1), x.argmin(dim=-1)),
            *(x.logsumexp(dim=1), x.var(dim=1), x.std(), x.norm(dim=1), (x > 0).any(dim=1)),
        )


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return []
