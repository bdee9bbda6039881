"""Lists and dicts as arguments, dicts and nested tuples as results."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, pair: list[torch.Tensor], options: dict[str, torch.Tensor]):
        total = pair[0] + pair[1] * options["weight"]
        return {"total": total, "parts": (pair[0], [total.T, 3]), "nothing": None}


def get_inputs():
    return [
        [torch.randn(BATCH, FEATURES), torch.randn(BATCH, FEATURES)],
        {"weight": torch.rand(FEATURES)},
    ]


def get_init_inputs():
    return []
