"""PyTorch's nested tensors inside of nn.TransformerEncoder, which no graph has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from kernelwright.capture.errors import CaptureError


@contextmanager
def no_nested_tensors() -> Iterator[None]:
    """Refuse encoders whose own call leaves padded places out, which tracing does not show.

    Such a call gives zeros in the padded rows of a mask that is left-aligned, and other numbers
    for any other mask; torch.export traces only the latter.
    """
    forward: Callable[..., Any] = nn.TransformerEncoder.forward

    def checked(
        self: nn.TransformerEncoder,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: Any = None,
    ) -> Any:
        if mask is None and src_key_padding_mask is not None and _nests(self):
            raise CaptureError(
                "nn.TransformerEncoder with `src_key_padding_mask` computes on nested tensors in "
                "eval mode: padded rows of its result depend on how the mask is aligned",
                next_step="Construct the encoder with enable_nested_tensor=False.",
            )
        return forward(self, src, mask, src_key_padding_mask, is_causal)

    with patch.object(nn.TransformerEncoder, "forward", checked):
        yield


def _nests(encoder: nn.TransformerEncoder) -> bool:
    """Whether the encoder is one that would make nested tensors of padded ones."""
    enabled = torch.backends.mha.get_fastpath_enabled() and not encoder.layers[0].training
    return bool(enabled and getattr(encoder, "use_nested_tensor", False))
