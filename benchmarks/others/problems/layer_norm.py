"""Layer norm of the last dimension."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4096)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


def get_inputs() -> list[Tensor]:
    return [torch.rand(32768, 4096)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax.numpy as jnp
    from jax import lax

    def call(x: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = jnp.square(centred).mean(axis=-1, keepdims=True)
        return centred * lax.rsqrt(spread + 1e-5) * weights["norm.weight"] + weights["norm.bias"]

    return call
