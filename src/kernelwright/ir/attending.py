"""Meaning of attention: scores, shares and sums in plain PyTorch."""

import math
from collections.abc import Sequence

import torch

from kernelwright.ir.attention import Attention, Weighing


def attended(kind: Attention, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of an attention node, in the operands' type."""
    q, k, v = (
        operand.float() if operand.element_size() < 4 else operand for operand in operands[:3]
    )
    heads = max((it.shape[-3] for it in (q, k, v) if it.dim() > 2), default=1)
    q, k, v = (_for_heads(it, heads) for it in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if kind.scale is None else kind.scale
    scores = q @ k.mT * scale
    if kind.causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~kept, -math.inf)
    for mask in operands[3:]:
        if mask.dim() == scores.dim() == 4 and 1 < mask.shape[0] < scores.shape[0]:
            mask = mask.repeat(scores.shape[0] // mask.shape[0], 1, 1, 1)
        is_kept = mask.dtype is torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if is_kept else scores + mask
    shares = scores.relu() if kind.weighing is Weighing.RELU else scores.softmax(-1)
    if kind.empty_is_zero:
        shares = shares.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    result = (shares @ v).to(operands[0].dtype)
    return result if kind.order is None else result.permute(kind.order).contiguous()


def _for_heads(operand: torch.Tensor, heads: int) -> torch.Tensor:
    """The operand with so many heads, each of its own for several neighbours."""
    if operand.dim() < 3 or operand.shape[-3] in (0, 1, heads):
        return operand
    return operand.repeat_interleave(heads // operand.shape[-3], -3)
