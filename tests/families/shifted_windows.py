"""Attention in windows that were moved on, as Swin has it, then the corners of squares together."""

import torch
from torch import nn

BATCH = 3
SIDE = 8
WINDOW = 4
SHIFT = 1
CHANNELS = 32
HEADS = 2


def windows(x):
    """(batch, side, side, channels) to (windows, places, channels)."""
    count = SIDE // WINDOW
    x = x.view(-1, count, WINDOW, count, WINDOW, CHANNELS)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, CHANNELS)


def image(x):
    """The windows back in their places."""
    count = SIDE // WINDOW
    x = x.view(-1, count, count, WINDOW, WINDOW, CHANNELS)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, SIDE, SIDE, CHANNELS)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        # It also says that the sizes of an image are known.
        self.places = nn.Parameter(
            torch.linspace(0, 0.5, SIDE * SIDE * CHANNELS).view(SIDE, SIDE, -1)
        )

    def forward(self, x, bias):
        x = x + self.places.to(x.dtype)
        x = x + self.attended(x, bias)
        left, right = ([x[:, row::2, column::2, :] for row in [0, 1]] for column in [0, 1])
        return torch.cat([*left, *right], -1) * 0.5

    def attended(self, x, bias):
        own = windows(torch.roll(x, [-SHIFT, -SHIFT], [1, 2]))
        own = own.view(-1, WINDOW * WINDOW, HEADS, CHANNELS // HEADS).transpose(1, 2)
        scores = (own * (CHANNELS // HEADS) ** -0.5) @ own.transpose(-2, -1) + bias
        count = (SIDE // WINDOW) ** 2
        scores = scores.view(-1, count, HEADS, WINDOW**2, WINDOW**2) + self.mask(x)
        shares = scores.view(-1, HEADS, WINDOW**2, WINDOW**2).softmax(-1)
        joined = (shares @ own).transpose(1, 2).reshape(-1, WINDOW * WINDOW, CHANNELS)
        return image(joined).roll([SHIFT, SHIFT], [1, 2])

    def mask(self, x):
        """-100 between what was not neighbours before the shift."""
        number = x.new_zeros((SIDE, SIDE))
        edges = [0, -WINDOW, -SHIFT, None]
        for at in range(9):
            rows = slice(*edges[at // 3 :][:2])
            columns = slice(*edges[at % 3 :][:2])
            number[rows, columns] = at
        count = SIDE // WINDOW
        number = number.view(count, WINDOW, count, WINDOW).permute(0, 2, 1, 3)
        number = number.reshape(-1, WINDOW * WINDOW)
        apart = number.unsqueeze(1) - number.unsqueeze(2)
        apart = apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)
        return apart.unsqueeze(1).unsqueeze(0)


def get_inputs():
    return [
        torch.rand(BATCH, SIDE, SIDE, CHANNELS),
        torch.rand(HEADS, WINDOW * WINDOW, WINDOW * WINDOW),
    ]


def get_init_inputs():
    return []
