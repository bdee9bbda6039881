"""Operations in place on intermediate tensors and on pieces of them."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor):
        y = self.relu(x + 1).mul_(2)
        y[:, 0] = 0.5
        y[:, 1:3] += x[:, 1:3]
        y[0].clamp_(max=1)
        return y.add_(x)


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
