"""A sequence cut into blocks, with parameters for a sequence of one length."""

import torch
from torch import nn

BATCH = 3
LENGTH = 12
BLOCK = 4
CHANNELS = 5
STATES = 2


class Model(nn.Module):
    def __init__(self, length, block, states):
        super().__init__()
        self.block = block
        self.keys = nn.Parameter(torch.rand(length, states))
        self.decay = nn.Parameter(torch.rand(length))

    def forward(self, x):
        blocks = x.shape[1] // self.block
        cut = x.reshape(x.shape[0], blocks, self.block, x.shape[2])
        keys = self.keys.reshape(-1, self.block, self.keys.shape[1])
        return torch.einsum("cln,cl,bclp->bcpn", keys, self.decay.reshape(-1, self.block), cut)


def get_inputs():
    return [torch.rand(BATCH, LENGTH, CHANNELS)]


def get_init_inputs():
    return [LENGTH, BLOCK, STATES]
