"""Blocks after which buffers and random state are what they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def kept_random_state() -> Iterator[None]:
    """A block that may draw random numbers and set seeds, here and on the current GPU."""
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(gpus):
        yield


@contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """A block after which buffers hold what they held."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
