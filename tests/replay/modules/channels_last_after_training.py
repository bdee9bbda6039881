"""The same network as it is used after training: its norms are a factor and a term."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(3))
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.norms[2](self.shortcut(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.blocks = nn.Sequential(Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2))
        self.depthwise = nn.Conv2d(256, 256, 3, padding=1, groups=256, bias=False)
        self.head = nn.Linear(256, 100)
        self.eval()

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = F.hardswish(self.depthwise(self.blocks(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def get_inputs():
    return [torch.rand(32, 3, 224, 224)]


def get_init_inputs():
    return []
