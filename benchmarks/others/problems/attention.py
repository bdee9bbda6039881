"""Causal attention in float32."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs() -> list[Tensor]:
    return [torch.rand(8, 16, 2048, 64) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax
    import jax.numpy as jnp

    def call(q: Any, k: Any, v: Any) -> Any:
        turned = [jnp.swapaxes(it, 1, 2) for it in (q, k, v)]
        found = jax.nn.dot_product_attention(*turned, is_causal=True)
        return jnp.swapaxes(found, 1, 2)

    return call
