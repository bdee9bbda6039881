"""A bidirectional LSTM of two layers, states given, its last output through a linear layer."""

import torch
from torch import nn

BATCH = 3
LENGTH = 7
WIDTH = 4
HIDDEN = 5


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 3)

    def forward(self, x: torch.Tensor, h: torch.Tensor):
        outputs, (state, cell) = self.lstm(x, (h, h + 1))
        return self.head(outputs[:, -1, :]), state, cell


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.randn(4, BATCH, HIDDEN)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
