"""An LSTM of 256 units over 512 steps."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 256, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def get_inputs() -> list[Tensor]:
    return [torch.rand(10, 512, 128)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    inputs, hidden, bias, other = (weights[f"lstm.{name}"] for name in names)

    def step(carry: Any, gates: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(gates + h @ hidden.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def call(x: Any) -> Any:
        gates = jnp.swapaxes(x @ inputs.T + bias + other, 0, 1)
        zero = jnp.zeros((x.shape[0], 256), x.dtype)
        return jnp.swapaxes(lax.scan(step, (zero, zero), gates)[1], 0, 1)

    return call
