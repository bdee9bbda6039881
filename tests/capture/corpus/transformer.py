"""nn.TransformerEncoder, which copies its layers."""

import torch
from torch import nn

BATCH = 3
LENGTH = 5
WIDTH = 8


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)

    def forward(self, x: torch.Tensor):
        return self.encoder(x)


def get_inputs():
    return [torch.randn(LENGTH, BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
