"""Attention as one call of PyTorch: an `Attention` node."""

from typing import Any

import torch

from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.graph import Guard


def attention(builder: Builder, call: Call) -> str | None:
    """The node of a scaled dot product attention; None of another call.

    None too where it drops elements, and where its scale is known at the call alone.
    """
    if call.operator != "scaled_dot_product_attention":
        return None
    given = call.arguments
    mask, scale = given["attn_mask"], given["scale"]
    if given["dropout_p"] or not (scale is None or isinstance(scale, float | int)):
        return None
    operands = [given[name] for name in ("query", "key", "value")]
    operands += [mask] if mask is not None else []
    if any(isinstance(builder.values.get(operand), Number) for operand in operands):
        return None
    kind = Attention(
        scale=None if scale is None else float(scale),
        causal=bool(given["is_causal"]),
        masking=_masking(mask),
        empty_is_zero=True,
    )
    inputs = [builder.tensor(operand) for operand in operands]
    _guard_keys(builder, *inputs[1:3])
    return builder.add_call(call, kind, inputs, builder.origin(call.node))


def _guard_keys(builder: Builder, k: str, v: str) -> None:
    """Make sure that each key has a value: PyTorch's shapes do not say so."""
    keys, values = (builder.node(name).tensor.shape[-2] for name in (k, v))
    guard = Guard(
        condition=f"{keys} == {values}",
        message=f"attention needs a row of values for each key: {keys} must be {values}",
    )
    if keys != values and guard not in builder.sizes.guards:
        builder.sizes.guards.append(guard)


def _masking(mask: Any) -> Masking:
    if mask is None:
        return Masking.NONE
    return Masking.KEEP if mask.meta["val"].dtype is torch.bool else Masking.ADD
