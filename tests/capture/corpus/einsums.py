"""Einsum equations: contractions, outer products, permutes, diagonals, an ellipsis."""

import torch
from torch import nn

BATCH = 3
M = 4
K = 5
N = 6


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor):
        return (
            *(torch.einsum("bmk,bkn->bmn", a, b), torch.einsum("bmk,bkn->nm", a, b)),
            *(torch.einsum("bmk,bkn", a, b), torch.einsum("bmk,lkn->blmn", a, b)),
            *(
                torch.einsum("bmk->kbm", a),
                torch.einsum("bmk->bk", a),
                torch.einsum("m,n->nm", a[0, :, 0], b[0, 0]),
            ),
            *(torch.einsum("bmk,bmk->bmk", a, a), torch.einsum("...mk,...kn->...mn", a, b)),
            *(
                torch.einsum("bmk,bkn,nj->bmj", a, b, b[0].T),
                torch.einsum("bmk,bk->bm", a, b[..., 0]),
            ),
            *(torch.einsum("iij->ij", a[:, :3]), torch.einsum("bmk,bkn->bm", a, b)),
        )


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
