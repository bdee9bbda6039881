"""Rows of every length: in a warp, a block, a cluster, the whole card, in parts, side by side."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4096)
        self.groups = nn.GroupNorm(8, 64)
        self.batch = nn.BatchNorm2d(64)

    def forward(self, short, row, odd, long, grid, image, column, classes):
        return (
            *(torch.softmax(short, 1), short.amax(1), short.sum(1), short.argmax(1)),
            *(torch.softmax(row, 1), self.norm(row), row.var(1), torch.logsumexp(row, 1)),
            *(F.normalize(row, dim=1), torch.log_softmax(odd, 1), odd / odd.abs().sum(1, True)),
            *(torch.softmax(long, 1), long.mean(1), long.norm(dim=1), torch.softmax(grid, 1)),
            *(self.groups(image), self.batch(image), F.instance_norm(image), image.mean((2, 3))),
            *(torch.softmax(column, 1), column.sum(1), column.amin(1), column.argmin(1)),
            *(F.cross_entropy(row, classes), F.mse_loss(row, row * 2), row.prod(0)),
            *((row > 0).any(1), (row * 2).std(0, keepdim=True), row.max()),
        )


def get_inputs():
    return [
        torch.rand(65536, 64),
        torch.rand(4096, 4096),
        torch.rand(2048, 20001),
        torch.rand(4, 2**20),
        torch.rand(32, 2**21),
        torch.rand(16, 64, 128, 128),
        torch.rand(64, 512, 1024),
        torch.randint(0, 4096, (4096,)),
    ]


def get_init_inputs():
    return []
