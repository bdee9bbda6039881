"""Products of float16, bfloat16 and float64, and many small ones."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, half, brain, double, tiny, left, right):
        return (
            *(half @ half, torch.relu(half @ half.T), brain @ brain, brain.T @ brain),
            *(half[:4] @ half, double @ double, tiny @ tiny.mT, tiny @ tiny),
            *(
                torch.einsum("bijl,lk->bijk", left, right),
                torch.einsum("bij,bj->bi", tiny, tiny[:, 0]),
            ),
        )


def get_inputs():
    return [
        torch.rand(4096, 4096, dtype=torch.float16),
        torch.rand(4096, 2048, dtype=torch.bfloat16)[:2048],
        torch.rand(1024, 1024, dtype=torch.float64),
        torch.rand(4096, 16, 16),
        torch.rand(8, 64, 128, 256),
        torch.rand(256, 768),
    ]


def get_init_inputs():
    return []
