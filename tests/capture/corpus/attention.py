"""Scaled dot-product attention: by the operator, and by hand with a causal mask from a buffer."""

import math

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2
LENGTH = 6
WIDTH = 8
HEADS = 2
LONGEST = 16


class Model(nn.Module):
    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.register_buffer(
            "mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest)
        )

    def forward(self, x: torch.Tensor):
        batch, length, width = x.shape
        q, k, v = self.project(x).split(width, dim=2)
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in (q, k, v)
        )
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        by_hand = (
            (torch.softmax(scores, dim=-1) @ v)
            .transpose(1, 2)
            .contiguous()
            .view(batch, length, width)
        )
        return by_hand, F.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, LONGEST]
