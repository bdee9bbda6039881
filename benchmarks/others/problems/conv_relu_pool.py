"""A convolution, ReLU and pooling."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(torch.relu(self.conv(x)), 2)


def get_inputs() -> list[Tensor]:
    return [torch.rand(64, 64, 130, 130)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def call(x: Any) -> Any:
        kind = ("NCHW", "OIHW", "NCHW")
        found = lax.conv_general_dilated(
            x, weights["conv.weight"], (1, 1), "VALID", dimension_numbers=kind
        )
        found = jax.nn.relu(found + weights["conv.bias"].reshape(1, -1, 1, 1))
        return lax.reduce_window(found, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    return call
