"""Matrix products of every family: tensor cores, thin ones, CUDA cores, with epilogues."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4096, 11008)
        self.down = nn.Linear(11008, 4096, bias=False)

    def forward(self, a, b, vector, skinny, deep, batch):
        hidden = F.gelu(self.up(a))
        return (
            *(self.down(hidden) + a, a @ b, a.T @ b, a @ b.T, a.T @ b.T),
            *(torch.relu(b @ a) * 2, vector @ b, b @ vector.T, skinny @ skinny.T),
            *(deep @ deep.T, batch @ batch.mT, torch.tril(b @ a.T), (b.T @ a).sum(1)),
            *(torch.diag(a[0]) @ b, a @ vector[0], b @ b + vector),
        )


def get_inputs():
    return [
        torch.rand(4096, 4096),
        torch.rand(4096, 4096),
        torch.rand(1, 4096),
        torch.rand(16384, 32),
        torch.rand(256, 262144),
        torch.rand(64, 512, 256),
    ]


def get_init_inputs():
    return []
