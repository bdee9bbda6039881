"""Means of the middle dimension."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(x, dim=1)


def get_inputs() -> list[Tensor]:
    return [torch.rand(128, 4096, 1023)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""

    return lambda x: x.mean(axis=1)
