"""Ways for a tensor to lie in memory."""

from collections.abc import Callable

import torch

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    # Neighbours along the last dimension are not neighbours in memory.
    "every other": lambda tensor: torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2],
    # Rows begin one element past an aligned address, and are one element longer.
    "misaligned": lambda tensor: torch.nn.functional.pad(tensor, (1, 0))[..., 1:],
}
