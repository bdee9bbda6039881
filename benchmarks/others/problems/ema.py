"""A moving average over time, written as running totals of a decaying weight."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", torch.exp(torch.linspace(-4, 4, 512))[None, :, None])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x * self.rates, dim=1) / self.rates


def get_inputs() -> list[Tensor]:
    return [torch.rand(64, 512, 4096)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax.numpy as jnp

    return lambda x: jnp.cumsum(x * weights["rates"], axis=1) / weights["rates"]
