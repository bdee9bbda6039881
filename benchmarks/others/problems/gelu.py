"""GELU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


def get_inputs() -> list[Tensor]:
    return [torch.rand(4096, 65536)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    import jax

    return lambda x: jax.nn.gelu(x, approximate=False)
