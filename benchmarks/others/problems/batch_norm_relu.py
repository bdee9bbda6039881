"""Batch norm with given statistics, and ReLU."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(64).eval()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(x))


def get_inputs() -> list[Tensor]:
    return [torch.rand(64, 64, 256, 256)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax
    from jax import lax

    def call(x: Any) -> Any:
        columns = {
            name: value.reshape(1, -1, 1, 1) for name, value in weights.items() if value.ndim
        }
        scale = columns["norm.weight"] * lax.rsqrt(columns["norm.running_var"] + 1e-5)
        centred = x - columns["norm.running_mean"]
        return jax.nn.relu(centred * scale + columns["norm.bias"])

    return call
