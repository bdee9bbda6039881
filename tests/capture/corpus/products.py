"""Matrix products of all ranks, with broadcasting."""

import torch
from torch import nn

BATCH = 3
M = 4
K = 5
N = 6


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
        vector = b[0, :, 0]
        return (
            *(a @ b, a[0] @ b[0], a @ b[0], a[0] @ b, torch.bmm(a, b), torch.mm(a[0], b[0])),
            *(a @ vector, vector @ b, torch.dot(vector, vector), torch.mv(a[0], vector)),
            *(a[:, None] @ b[None], a[:1] @ b, torch.outer(vector, a[0, :, 0])),
            *(torch.addmm(c, a[0], b[0]), torch.addmm(c[0], a[0], b[0], beta=0.5, alpha=2)),
            *(torch.baddbmm(c, a, b), torch.addmv(c[:, 0], a[0], vector)),
        )


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N), torch.randn(M, N)]


def get_init_inputs():
    return []
