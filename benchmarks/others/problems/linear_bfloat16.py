"""A linear layer with GELU in bfloat16."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1024, 4096).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.linear(x))


def get_inputs() -> list[Tensor]:
    return [torch.rand(8192, 1024).bfloat16()]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax

    def call(x: Any) -> Any:
        wide = x @ weights["linear.weight"].T + weights["linear.bias"]
        return jax.nn.gelu(wide, approximate=False)

    return call
