"""A convolution of 3 x 3, float32."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def get_inputs() -> list[Tensor]:
    return [torch.rand(8, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    from jax import lax

    def call(x: Any) -> Any:
        kind = ("NCHW", "OIHW", "NCHW")
        found = lax.conv_general_dilated(
            x, weights["conv.weight"], (1, 1), "VALID", dimension_numbers=kind
        )
        return found + weights["conv.bias"].reshape(1, -1, 1, 1)

    return call
