"""A depthwise convolution."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, groups=64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def get_inputs() -> list[Tensor]:
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return []


def xla(weights: dict[str, Any]) -> Any:
    """The same in JAX, with the module's weights."""
    from jax import lax

    def call(x: Any) -> Any:
        kind = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(
            x,
            weights["conv.weight"],
            (1, 1),
            "VALID",
            dimension_numbers=kind,
            feature_group_count=64,
        )

    return call
