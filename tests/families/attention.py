"""Attention by PyTorch's call and by hand: grouped heads, masks, a scale, strides of its own."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2
ROWS = 33
KEYS = 70
DEPTH = 24


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        turned = q.transpose(1, 2).contiguous().transpose(1, 2) - 0.5
        scores = (q[:, :2] @ k.mT) / 4
        by_hand = scores.masked_fill(mask > 0.5, float("-inf")).softmax(-1) @ v
        return (
            causal,
            by_hand,
            F.scaled_dot_product_attention(
                turned, k[:, :1], v[:, :1], attn_mask=mask * 2, scale=0.3
            ),
        )


def get_inputs():
    return [
        torch.rand(BATCH, 4, ROWS, DEPTH),
        torch.rand(BATCH, 2, KEYS, DEPTH),
        torch.rand(BATCH, 2, KEYS, DEPTH),
        torch.rand(ROWS, KEYS),
    ]


def get_init_inputs():
    return []
