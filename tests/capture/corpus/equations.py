"""Einsum equations with an ellipsis, several summed letters, more than two operands."""

import torch
from torch import nn

BATCH = 3
M = 4
K = 5
N = 6


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
        return (
            *(torch.einsum("...mk,...kn->...mn", a, b), torch.einsum("...mk,kn", a, b[0])),
            *(torch.einsum("mk,...kn->...nm", a[0], b), torch.einsum("...k,...kn->n", a[:, 0], b)),
            *(torch.einsum("bmk,bkn->nmb", a, b), torch.einsum("bmk,bkn->mn", a, b)),
            *(torch.einsum("bmk,blk->mbl", a, a), torch.einsum("bmk,mn->bk", a, c)),
            *(torch.einsum("bmk,bmk->", a, a), torch.einsum("bmk,bkn,mn->b", a, b, c)),
            *(torch.einsum("bmk,bkn,ln->bml", a, b, c), torch.einsum("mn,n,m->", c, c[0], c[:, 0])),
            *(torch.einsum("abmk,abkn->bman", a[:, None], b[:, None]), torch.einsum("bmk", a)),
        )


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N), torch.randn(M, N)]


def get_init_inputs():
    return []
