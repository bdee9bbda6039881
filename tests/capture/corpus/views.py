"""Permutes, reshapes, slices, and the other operators that move nothing."""

import torch
from torch import nn

BATCH = 4
ROWS = 6
COLUMNS = 8


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        a = x.permute(2, 0, 1).transpose(0, 1).unsqueeze(1).squeeze(1)
        b = x.reshape(x.shape[0], -1).view(x.shape[0], x.shape[1], x.shape[2])[:, 1:-1, ::2]
        c = x[:, 0].expand(3, -1, -1) + x.select(1, -1).flatten()[: x.shape[2]]
        d = x.flip(0, 2).movedim(0, 1).mT + x.permute(1, 2, 0).swapaxes(1, 2).mT
        e = x.narrow(2, 1, 3).unflatten(2, (3, 1)).squeeze()
        return a + 1, b * 2, c, d, e, x.T if x.dim() == 2 else x[-1], x[:, -2:], x[..., None]


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return []
