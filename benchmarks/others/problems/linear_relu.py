"""A linear layer with ReLU and a division behind it."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8192, 8192)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) / 2


def get_inputs() -> list[Tensor]:
    return [torch.rand(1024, 8192)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax

    return lambda x: jax.nn.relu(x @ weights["linear.weight"].T + weights["linear.bias"]) / 2
