"""Running totals: rows of a warp and of a block, columns, products, both directions, masks."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, row, short, column, mask):
        zeros = torch.zeros_like(row.select(1, 0).unsqueeze(1))
        return (
            *(row.cumsum(1), row.cumprod(1), row.flip(1).cumsum(1).flip(1)),
            torch.cat((zeros, row), 1)[:, :-1].cumsum(1),
            *((row * mask).cumsum(1), torch.exp(row).cumsum(1) * 2 + 1),
            *(short.cumsum(1), short.half().cumsum(1), short.double().cumprod(1)),
            *(column.cumsum(1), column.cumprod(1), column.to(torch.int64).cumsum(1)),
        )


def get_inputs():
    return [
        torch.rand(128, 32768),
        torch.rand(32768, 512),
        torch.rand(64, 512, 1024),
        torch.rand(128, 32768) > 0.5,
    ]


def get_init_inputs():
    return []
