"""Triangles of matrices: above and below diagonals, of products, of batches, of masks."""

import torch
from torch import nn

BATCH = 2
ROWS = 5
COLUMNS = 7


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        square = x @ x.mT
        return (
            *(torch.triu(x), torch.tril(x), torch.triu(x[0], 2), torch.tril(x, -1)),
            *(torch.triu(square), torch.tril(torch.triu(square, -1), 1).relu()),
            *(
                torch.triu(square[0].T, 1),
                torch.tril(x > 0),
                torch.tril(x[:, :1]),
                x[..., :1].triu(-2),
            ),
            *(torch.triu(torch.ones_like(square)) * square, torch.tril(x.mT).mT, x.half().triu(-1)),
            torch.triu(x / 0.0),
        )


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return []
