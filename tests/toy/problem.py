"""A line that is flipped, and one that no kernel of the toy family takes."""

import torch
from torch import nn

N = 300


class Model(nn.Module):
    def forward(self, x):
        return x.flip(0), torch.tanh(x)


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
