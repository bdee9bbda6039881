"""A GRU and an Elman network that start from zeros."""

import torch
from torch import nn

BATCH = 3
LENGTH = 7
WIDTH = 4
HIDDEN = 5


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, 2)
        self.rnn = nn.RNN(hidden, 3, nonlinearity="relu")

    def forward(self, x: torch.Tensor):
        return self.rnn(self.gru(x)[0])


def get_inputs():
    return [torch.randn(LENGTH, BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
