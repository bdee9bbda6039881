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
        # Some rows keep no key: these have equal shares.
        dropped = (mask > 0.5) | (mask[:, :1] > 0.2)
        by_hand = scores.masked_fill(dropped, -1e9).softmax(-1) @ v
        # Windows that have masks in turns, without a softmax.
        own = (q.float() if q.dtype.itemsize < 4 else q).reshape(2 * BATCH, 2, *q.shape[2:])
        shift = torch.stack((mask[:, :1], -mask[:, -1:]))
        windows = (own @ own.mT).unflatten(0, (BATCH, 2)) + shift[:, None].to(own.dtype) - 0.2
        positive = windows.flatten(0, 1).relu() @ own
        return (
            causal,
            by_hand.transpose(1, 2).flatten(2),
            positive.transpose(1, 2).flatten(2).to(q.dtype),
            F.scaled_dot_product_attention(
                turned, k[:, :1], v[:, :1], attn_mask=mask * 2, scale=0.3
            ),
            # A new row against keys that are there.
            F.scaled_dot_product_attention(q[:, :, -1:], k, v, enable_gqa=True),
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
