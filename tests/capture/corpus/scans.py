"""Running sums and products: forwards, backwards, exclusive, masked."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        backwards = torch.cumsum(x.flip(1), dim=1).flip(1)
        zeros = torch.zeros_like(x.select(1, 0).unsqueeze(1))
        exclusive = torch.cat((zeros, x), dim=1)[:, :-1].cumsum(1)
        return (
            torch.cumsum(x, dim=1),
            torch.cumprod(x, dim=0),
            backwards,
            exclusive,
            (x * (x > 0)).cumsum(1),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
