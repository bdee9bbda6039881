"""Sums of products under their other names: inner, tensordot, addbmm, bilinear, chains."""

import torch
from torch import nn
from torch.nn import functional

BATCH = 3
M = 4
K = 5
N = 6


class Model(nn.Module):
    def __init__(self, m: int, k: int) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(m, k, 7)

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
        vector, row = b[0, :, 0], c[0]
        unknown = c * float("nan")
        return (
            *(torch.vdot(vector, a[0, 0]), torch.inner(a, b.mT), torch.inner(vector, vector)),
            *(torch.tensordot(a, b[0], dims=1), torch.tensordot(a, b.mT, dims=([2, 0], [2, 0]))),
            *(torch.tensordot(a, b, dims=([0, 2], [0, 1])), torch.tensordot(a[0], b, ([1], [1]))),
            *(torch.addbmm(c, a, b), torch.addbmm(row, a, b, beta=0.5, alpha=2)),
            *(torch.addmm(unknown, a[0], b[0], beta=0), torch.baddbmm(unknown, a, b, beta=0)),
            *(
                torch.addmv(unknown[:, 0], a[0], vector, beta=0, alpha=3),
                torch.addr(c, c[:, 0], row),
            ),
            *(
                self.bilinear(c.T[:, : a.shape[1]], b[0].T),
                torch.linalg.multi_dot([a[0], b[0], c.T]),
            ),
            *(torch.linalg.multi_dot([vector, b[0], c.T, c[:, 1]]), torch.linalg.matmul(a, b)),
            functional.linear(vector, a[0]),
        )


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N), torch.randn(M, N)]


def get_init_inputs():
    return [M, K]
