"""Promotion between element types, conversions, and 16-bit floats."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor):
        half = x.half()
        narrow = x.to(torch.bfloat16)
        return (
            *(half * 1.1 + half, narrow * narrow - 0.3, half + x, n + 0.5, n * 2, n / 3, n > 2),
            *(
                x.double() * n[:, None],
                (x > 0).float() * 3,
                (x > 0) * n[:, None],
                half.exp(),
                narrow.sigmoid(),
            ),
            *(n.int() + n, x.type_as(half), x.long(), n.bool(), torch.addcmul(half, half, half)),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES), torch.arange(BATCH)]


def get_init_inputs():
    return []
