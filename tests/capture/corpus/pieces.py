"""Lists of views: split, chunk, unbind, broadcast_tensors."""

import torch
from torch import nn

BATCH = 6
COLUMNS = 9


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        first, second, third = x.split([2, 3, 4], dim=1)
        left, right = x.chunk(2, dim=0)
        thirds = x.split(3, dim=1)
        rows = x.unbind(1)
        wide, tall = torch.broadcast_tensors(x, x[:, :1])
        return (
            first + 1,
            second * third[:, :3],
            left - right,
            thirds[2],
            rows[4] + rows[-1],
            wide - tall,
        )


def get_inputs():
    return [torch.randn(BATCH, COLUMNS)]


def get_init_inputs():
    return []
