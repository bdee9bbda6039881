"""Max pooling of planes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, kernel_size=4, stride=1, padding=1)


def get_inputs() -> list[Tensor]:
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax.numpy as jnp
    from jax import lax

    def call(x: Any) -> Any:
        edges = ((0, 0), (0, 0), (1, 1), (1, 1))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 4, 4), (1, 1, 1, 1), edges)

    return call
