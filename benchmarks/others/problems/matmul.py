"""A float32 product."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[Tensor]:
    return [torch.rand(4096, 4096), torch.rand(4096, 4096)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax.numpy as jnp

    return lambda a, b: jnp.matmul(a, b)
