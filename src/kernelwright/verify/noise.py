"""Numbers that are off by up to a rounding, each in a direction that chance decides."""

from enum import Enum

import torch
from torch import Tensor


class Ties(Enum):
    """Whether numbers that are equal become unequal."""

    KEPT = "kept"
    BROKEN = "broken"


class Noise:
    """Moves numbers by up to half the distance to the next one of their type."""

    def __init__(self, draw: int, ties: Ties) -> None:
        """`draw` says in which direction each; zeros move as well with `Ties.BROKEN`."""
        self._ties = ties
        self._generator = torch.Generator()
        self._generator.manual_seed(draw)

    def add_to(self, tensor: Tensor, epsilon: float) -> None:
        """Change a floating-point tensor in place; all others stay."""
        if epsilon == 0.0 or tensor.numel() == 0 or not tensor.is_floating_point():
            return
        seed = int(torch.randint(1 << 30, (), generator=self._generator).item())
        local = torch.Generator(device=tensor.device)
        local.manual_seed(seed)
        noise = torch.empty_like(tensor).uniform_(-epsilon / 2, epsilon / 2, generator=local)
        if self._ties is Ties.BROKEN:
            tensor.add_(noise * float(tensor[tensor.isfinite()].abs().mean().nan_to_num(1.0)))
        tensor.add_(tensor * noise)
