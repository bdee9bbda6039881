"""Two linear layers with GELU between them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1024, 4096), nn.Linear(4096, 1024)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.gelu(self.first(x)))


def get_inputs() -> list[Tensor]:
    return [torch.rand(4096, 1024)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax

    def call(x: Any) -> Any:
        wide = x @ weights["first.weight"].T + weights["first.bias"]
        wide = jax.nn.gelu(wide, approximate=False)
        return wide @ weights["second.weight"].T + weights["second.bias"]

    return call
