"""Functions of `problems` as kernels in Helion: a grid of tiles, and what each computes.

`KERNELS` has them by the problem's name. They are written as Helion's documentation writes such
kernels, sizes and loops open to its search; none has a configuration. Each works at any sizes.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import helion.language as hl
import torch
from torch import Tensor

# --- Rows ----------------------------------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    rows, columns = x.size()
    for at in hl.tile(rows):
        largest = hl.full([at], float("-inf"), dtype=torch.float32)
        total = hl.zeros([at], dtype=torch.float32)
        for part in hl.tile(columns):
            values = x[at, part]
            now = torch.maximum(largest, torch.amax(values, dim=1))
            total = total * torch.exp(largest - now) + torch.exp(values - now[:, None]).sum(dim=1)
            largest = now
        for part in hl.tile(columns):
            out[at, part] = torch.exp(x[at, part] - largest[:, None]) / total[:, None]
    return out


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    for at in hl.tile(x.size(0)):
        values = x[at, :]
        centred = values - torch.mean(values, dim=-1)[:, None]
        variance = torch.mean(centred * centred, dim=-1)
        scaled = centred * torch.rsqrt(variance + eps)[:, None]
        out[at, :] = scaled * weight[None, :] + bias[None, :]
    return out


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """Over the middle dimension."""
    out = torch.empty_like(x)
    images, _, pixels = x.size()
    for image, pixel in hl.tile([images, pixels]):
        values = x[image, :, pixel]
        square = torch.mean(values * values, dim=1)
        out[image, :, pixel] = values * torch.rsqrt(square + eps)[:, None, :]
    return out


def cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    rows, classes = x.size()
    losses = torch.empty([rows], dtype=x.dtype, device=x.device)
    flat = x.view(-1)
    for at in hl.tile(rows):
        values = x[at, :]
        largest = torch.amax(values, dim=-1)
        total = torch.sum(torch.exp(values - largest[:, None]), dim=-1)
        picked = hl.load(flat, [at.index * classes + labels[at]])
        losses[at] = torch.log(total) + largest - picked
    return losses.mean()


def running_totals(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for at in hl.tile(x.size(0)):
        out[at, :] = hl.cumsum(x[at, :], dim=1)
    return out


def weighted_totals(x: Tensor, rates: Tensor) -> Tensor:
    """Along the middle dimension."""
    out = torch.empty_like(x)
    batches, _, columns = x.size()
    for batch, column in hl.tile([batches, columns]):
        weights = rates[:][None, :, None]
        out[batch, :, column] = hl.cumsum(x[batch, :, column] * weights, dim=1) / weights
    return out


def mean_of_middle(x: Tensor) -> Tensor:
    batches, rows, columns = x.size()
    out = torch.empty([batches, columns], dtype=x.dtype, device=x.device)
    for batch, column in hl.tile([batches, columns]):
        total = hl.zeros([batch, column], dtype=torch.float32)
        for row in hl.tile(rows):
            total = total + x[batch, row, column].sum(dim=1)
        out[batch, column] = total / rows
    return out


# --- Elements ------------------------------------------------------------------------------------


def gelu(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for at in hl.tile(x.size()):
        out[at] = _gelu(x[at])
    return out


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.erf(x * math.sqrt(0.5)))


def batch_norm_relu(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    out = torch.empty_like(x)
    for image, channel, pixel in hl.tile(x.size()):
        scale = weight[channel] * torch.rsqrt(variance[channel] + eps)
        shift = bias[channel] - mean[channel] * scale
        values = x[image, channel, pixel] * scale[None, :, None] + shift[None, :, None]
        out[image, channel, pixel] = torch.relu(values)
    return out


# --- Products ------------------------------------------------------------------------------------


def product(a: Tensor, b: Tensor) -> Tensor:
    out = torch.empty([a.size(0), b.size(1)], dtype=a.dtype, device=a.device)
    for row, column in hl.tile([a.size(0), b.size(1)]):
        total = hl.zeros([row, column], dtype=torch.float32)
        for k in hl.tile(a.size(1)):
            total = torch.addmm(total, a[row, k], b[k, column])
        out[row, column] = total.to(out.dtype)
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
    """What `finish` makes of the sums with their bias."""
    out = torch.empty([x.size(0), weight.size(0)], dtype=x.dtype, device=x.device)
    for row, column in hl.tile([x.size(0), weight.size(0)]):
        total = hl.zeros([row, column], dtype=torch.float32)
        for k in hl.tile(x.size(1)):
            total = torch.addmm(total, x[row, k], weight[column, k].T)
        out[row, column] = finish(total + bias[column][None, :]).to(out.dtype)
    return out


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _half_of_relu(x: Tensor) -> Tensor:
    return torch.relu(x) / 2


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of heads one after the other."""
    heads, length, depth = q.size()
    depth = hl.specialize(depth)
    out = torch.empty_like(q)
    scale = 1.0 / math.sqrt(depth)
    for head, row in hl.tile([heads, length]):
        largest = hl.full([head, row], float("-inf"), dtype=torch.float32)
        total = hl.zeros([head, row], dtype=torch.float32)
        sums = hl.zeros([head, row, depth], dtype=torch.float32)
        for key in hl.tile(k.size(1)):
            scores = torch.bmm(q[head, row, :], k[head, key, :].transpose(1, 2)) * scale
            now = torch.maximum(largest, torch.amax(scores, dim=-1))
            shares = torch.exp(scores - now[:, :, None])
            kept = torch.exp(largest - now)
            total = total * kept + torch.sum(shares, dim=-1)
            sums = torch.baddbmm(sums * kept[:, :, None], shares.to(v.dtype), v[head, key, :])
            largest = now
        out[head, row, :] = (sums / total[:, :, None]).to(out.dtype)
    return out


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of heads one after the other. Helion 1.5 does not lower a function of the three values that a
    step carries, which this and `attention` could share."""
    heads, length, depth = q.size()
    depth = hl.specialize(depth)
    out = torch.empty_like(q)
    scale = 1.0 / math.sqrt(depth)
    for head, row in hl.tile([heads, length]):
        largest = hl.full([head, row], float("-inf"), dtype=torch.float32)
        total = hl.zeros([head, row], dtype=torch.float32)
        sums = hl.zeros([head, row, depth], dtype=torch.float32)
        for key in hl.tile(0, row.end):
            scores = torch.bmm(q[head, row, :], k[head, key, :].transpose(1, 2)) * scale
            is_before = row.index[:, None] >= key.index[None, :]
            scores = torch.where(is_before[None, :, :], scores, float("-inf"))
            now = torch.maximum(largest, torch.amax(scores, dim=-1))
            shares = torch.exp(scores - now[:, :, None])
            kept = torch.exp(largest - now)
            total = total * kept + torch.sum(shares, dim=-1)
            sums = torch.baddbmm(sums * kept[:, :, None], shares.to(v.dtype), v[head, key, :])
            largest = now
        out[head, row, :] = (sums / total[:, :, None]).to(out.dtype)
    return out


# --- As the problems call them -------------------------------------------------------------------

Weights = Mapping[str, Any]
Made = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes a kernel of a function."""


def _heads(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def joined(*tensors: Tensor) -> Tensor:
        return call(*(it.flatten(0, 1) for it in tensors)).view_as(tensors[0])

    return joined


def _rms_norm(kernel: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: kernel(x.flatten(2), 1e-5).view_as(x)


def _batch_norm(kernel: Callable[..., Tensor], w: Weights) -> Callable[[Tensor], Tensor]:
    of = tuple(w[f"norm.{it}"] for it in ("running_mean", "running_var", "weight", "bias"))
    return lambda x: kernel(x.flatten(2), *of, 1e-5).view_as(x)


def _layer_norm(kernel: Callable[..., Tensor], w: Weights) -> Callable[[Tensor], Tensor]:
    return lambda x: kernel(x, w["norm.weight"], w["norm.bias"], 1e-5)


def _weighted_totals(kernel: Callable[..., Tensor], w: Weights) -> Callable[[Tensor], Tensor]:
    rates = w["rates"].flatten()
    return lambda x: kernel(x, rates)


def _linear(
    made: Made, w: Weights, name: str, finish: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    kernel = made(linear)
    return lambda x: kernel(x, w[f"{name}.weight"], w[f"{name}.bias"], finish)


def _mlp(made: Made, w: Weights) -> Callable[[Tensor], Tensor]:
    first, second = _linear(made, w, "first", _gelu), _linear(made, w, "second", _as_it_is)
    return lambda x: second(first(x))


KERNELS: dict[str, Callable[[Made, Weights], Callable[..., Tensor]]] = {
    "softmax": lambda made, w: made(softmax),
    "layer_norm": lambda made, w: _layer_norm(made(layer_norm), w),
    "rms_norm": lambda made, w: _rms_norm(made(rms_norm)),
    "cross_entropy": lambda made, w: made(cross_entropy),
    "cumsum": lambda made, w: made(running_totals),
    "ema": lambda made, w: _weighted_totals(made(weighted_totals), w),
    "mean_columns": lambda made, w: made(mean_of_middle),
    "gelu": lambda made, w: made(gelu),
    "batch_norm_relu": lambda made, w: _batch_norm(made(batch_norm_relu), w),
    "matmul": lambda made, w: made(product),
    "linear_relu": lambda made, w: _linear(made, w, "linear", _half_of_relu),
    "linear_bfloat16": lambda made, w: _linear(made, w, "linear", _gelu),
    "mlp": _mlp,
    "attention": lambda made, w: _heads(made(causal_attention)),
    "attention_bfloat16": lambda made, w: _heads(made(attention)),
}
"""What a problem's forward is with kernels, of its weights."""
