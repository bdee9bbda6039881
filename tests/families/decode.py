"""What comes before attention in a decode step: rotary embedding, a new key and value."""

import torch
from torch import nn

TEXTS = 3
LENGTH = 7
K = 40
DEPTH = 12


def rotated(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.norm = nn.RMSNorm(K, eps=1e-6)
        self.query = nn.Linear(K, 3 * DEPTH, bias=False)
        self.key = nn.Linear(K, 2 * DEPTH, bias=False)
        self.value = nn.Linear(K, 2 * DEPTH, bias=False)
        self.to(DTYPE)

    def forward(self, x, keys, values, cosine, sine):
        normed = self.norm(x)
        q, k, v = (
            made(normed).view(x.shape[0], 1, -1, DEPTH).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        keys[:, :, -1:] = rotated(k, cosine, sine)
        values[:, :, -1:] = v
        return rotated(q, cosine, sine), keys * 2, values * 2, normed


DTYPE = torch.float32


def get_inputs():
    return [
        torch.rand(TEXTS, 1, K),
        torch.rand(TEXTS, 2, LENGTH, DEPTH),
        torch.rand(TEXTS, 2, LENGTH, DEPTH),
        torch.rand(DEPTH),
        torch.rand(DEPTH),
    ]


def get_init_inputs():
    return []
