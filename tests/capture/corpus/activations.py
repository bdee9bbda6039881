"""One of each activation that is a single expression."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                *(nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2), nn.ELU(1.3), nn.SELU(), nn.CELU(0.7)),
                *(
                    nn.GELU(),
                    nn.GELU("tanh"),
                    nn.SiLU(),
                    nn.Mish(),
                    nn.Hardswish(),
                    nn.Hardsigmoid(),
                ),
                *(nn.Hardtanh(-0.5, 0.8), nn.Softplus(2.0, 5.0), nn.Softsign(), nn.LogSigmoid()),
                *(
                    nn.Sigmoid(),
                    nn.Tanh(),
                    nn.Tanhshrink(),
                    nn.Hardshrink(0.3),
                    nn.Threshold(0.1, 2.0),
                ),
            ]
        )

    def forward(self, x: torch.Tensor):
        return [layer(3 * x) for layer in self.layers]


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
