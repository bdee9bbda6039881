"""Linear layers with and without bias, in a Sequential and on more than two dimensions."""

import torch
from torch import nn

BATCH = 4
ROWS = 5
FEATURES = 6
HIDDEN = 7


class Model(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 3, bias=False)
        )

    def forward(self, x: torch.Tensor):
        return self.net(x)


def get_inputs():
    return [torch.randn(BATCH, ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
