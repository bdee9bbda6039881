"""Meaning of the kinds of nodes: what each makes of tensors, in plain PyTorch."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import (
    Accumulation,
    Constant,
    Contract,
    Conv,
    Opaque,
    Parameter,
    Patches,
    Pooling,
    Project,
    Reduction,
    Scan,
    TileMoments,
    TileReduction,
    View,
    Window,
    Write,
)
from kernelwright.ir.types import TensorType

_THERE = Parameter | Constant | View | Write | Opaque | Project
"""Kinds whose values no kernel makes: they lie where they lie."""


def reduced(op: Reduction, x: torch.Tensor, dims: tuple[int, ...]) -> Any:
    """What the rows of `x` are reduced to."""
    match op:
        case Reduction.MOMENTS:
            mean = x.mean(dims, keepdim=True)
            return mean, (x - mean).square().sum(dims, keepdim=True)
        case Reduction.EXP_SUM:
            lowest = x.new_full(
                [1 if at in dims else n for at, n in enumerate(x.shape)], -torch.inf
            )
            high = x.amax(dims, keepdim=True) if x.numel() else lowest
            terms = torch.where(high == -torch.inf, 0.0, torch.exp(x - high))
            return high, terms.sum(dims, keepdim=True)
        case Reduction.PRODUCT:
            for dim in dims:
                x = x.prod(dim, keepdim=True)
            return x
        case Reduction.ARGMAX | Reduction.ARGMIN:
            kept = [dim for dim in range(x.dim()) if dim not in dims]
            rows = x.permute(*kept, *dims).flatten(len(kept))
            shape = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
            return getattr(rows, op.value)(-1).reshape(shape)
    names = {Reduction.MAXIMUM: "amax", Reduction.MINIMUM: "amin"}
    return getattr(torch, names.get(op, op.value))(x, dims, keepdim=True)


def scanned(kind: Scan, x: torch.Tensor) -> torch.Tensor:
    """The running totals of `x`."""
    x = x.flip(kind.dim) if kind.reverse else x
    if kind.exclusive:
        neutral = torch.full_like(x.narrow(kind.dim, 0, 1), kind.op is Accumulation.PRODUCT)
        x = torch.cat([neutral, x.narrow(kind.dim, 0, x.shape[kind.dim] - 1)], kind.dim)
    totals = x.cumsum(kind.dim) if kind.op is Accumulation.SUM else x.cumprod(kind.dim)
    return totals.flip(kind.dim) if kind.reverse else totals


def laid_out(value: Any, node: Node) -> Any:
    """Value of a node in the layout of its type, if a kernel writes it."""
    if not isinstance(node.type, TensorType) or isinstance(node.kind, _THERE):
        return value
    order = node.type.layout.order if node.type.layout else tuple(range(value.dim()))
    return value.permute(order).contiguous().permute([order.index(dim) for dim in sorted(order)])


def looped(
    step: Callable[[list[Any]], torch.Tensor], shape: list[int], operands: Sequence[Any]
) -> torch.Tensor:
    """The carried values of a loop, one after the other; `step` takes one and its operands."""
    carried, results = operands[0], []
    for at in range(shape[0]):
        each = [_element(operand, at, len(shape)) for operand in operands[1:]]
        carried = step([carried, *each]).expand(shape[1:]).clone()
        results.append(carried)
    return torch.stack(results) if results else torch.empty(shape, dtype=carried.dtype)


def _element(operand: Any, step: int, rank: int) -> Any:
    """What a step of a loop reads of an operand that broadcasts to `rank` dimensions."""
    if not isinstance(operand, torch.Tensor) or operand.dim() < rank:
        return operand
    return operand[step if operand.shape[0] > 1 else 0]


def contracted(
    kind: Contract, shape: Sequence[int], left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """The sum of products, of this shape."""
    if kind.patches is not None:
        left = _patches(kind.patches, shape, left)
    return torch.einsum(kind.equation, left, right)


def _patches(kind: Patches, shape: Sequence[int], images: torch.Tensor) -> torch.Tensor:
    """Rows of patches, as many of an image as `shape` says."""
    parts = []
    for taps in itertools.product(*map(range, kind.taps)):
        part = images
        for at, tap in enumerate(taps):
            places = torch.arange(shape[1 + at]) * kind.stride[at] - kind.padding[at]
            places = places + tap * kind.dilation[at]
            inside = (places >= 0) & (places < images.shape[1 + at])
            part = part.index_select(1 + at, places.clamp(0, max(0, images.shape[1 + at] - 1)))
            mask = inside.reshape(-1, *[1] * (2 - at))
            part = torch.where(mask, part, torch.zeros_like(part))
        parts.append(part)
    return torch.cat(parts, -1)


def gathered(dim: int, source: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Slices of `source` along `dim` at the places that `index` names, from the end if negative."""
    places = torch.where(index < 0, index + source.shape[dim], index)
    shape = (*source.shape[:dim], *index.shape, *source.shape[dim + 1 :])
    return source.index_select(dim, places.flatten()).reshape(shape)


def pooled(kind: Window, x: torch.Tensor, shape: list[int], *weights: torch.Tensor) -> torch.Tensor:
    """Windows of `x`, as many as `shape` says: one dimension after the other."""
    if weights:
        return _dots(kind, x, shape, *weights)
    lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    outside = 0 if kind.op is Pooling.SUM else lowest
    for at, size in enumerate(kind.size):
        dim = x.dim() - len(kind.size) + at
        starts = kind.stride[at] * torch.arange(shape[dim]) - kind.padding[at]
        taps = []
        for places in (starts + tap * kind.dilation[at] for tap in range(size)):
            values = x.index_select(dim, places.clamp(0, x.shape[dim] - 1))
            inside = (places >= 0) & (places < x.shape[dim])
            mask = inside.reshape(-1, *[1] * (x.dim() - dim - 1))
            taps.append(torch.where(mask, values, torch.full_like(values, outside)))
        stack = torch.stack(taps)
        x = stack.sum(0, dtype=x.dtype) if kind.op is Pooling.SUM else stack.amax(0)
    return x


def _dots(kind: Window, x: torch.Tensor, shape: list[int], w: torch.Tensor) -> torch.Tensor:
    """Each channel's products with its weights, one place of the window after the other."""
    count = len(kind.size)
    total = torch.zeros(shape, dtype=torch.float64)
    for taps in itertools.product(*map(range, kind.size)):
        value, inside = x.double(), torch.ones((), dtype=torch.bool)
        for at, tap in enumerate(taps):
            dim = x.dim() - count + at
            places = kind.stride[at] * torch.arange(shape[dim]) - kind.padding[at]
            places += tap * kind.dilation[at]
            value = value.index_select(dim, places.clamp(0, x.shape[dim] - 1))
            here = (places >= 0) & (places < x.shape[dim])
            inside = inside & here.reshape(-1, *[1] * (x.dim() - dim - 1))
        if kind.op is Pooling.DOT_LAST:
            weight = w[taps[:-1]].double()
        else:
            places_of_tap: Any = (slice(None), *taps)
            weight = w[places_of_tap].double().reshape(-1, *[1] * count)
        total += torch.where(inside, value * weight, 0.0)
    return total.to(x.dtype)


def convolved(
    conv: Conv,
    shape: Sequence[int],
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """What the node means, by calls without padding; `shape` is the result's."""
    count = len(conv.stride)
    sizes, taps = source.shape[-count:], weight.shape[2:]
    reach = [step * (tap - 1) + 1 for step, tap in zip(conv.dilation, taps, strict=True)]
    geometry = list(zip(shape[-count:], sizes, conv.stride, conv.padding, reach, strict=True))
    options = {"stride": conv.stride, "dilation": conv.dilation, "groups": conv.groups}
    if conv.transposed:
        whole = getattr(F, f"conv_transpose{count}d")(source, weight, **options)
        behind = [out + pad - ((n - 1) * s + r) for out, n, s, pad, r in geometry]
        widths = [(-pad, last) for (*_, pad, _), last in zip(geometry, behind, strict=True)]
        result = F.pad(whole, [width for pair in reversed(widths) for width in pair])
    else:
        behind = [(out - 1) * s + r - n - pad for out, n, s, pad, r in geometry]
        widths = [(pad, last) for (*_, pad, _), last in zip(geometry, behind, strict=True)]
        padded = F.pad(source, [width for pair in reversed(widths) for width in pair])
        result = getattr(F, f"conv{count}d")(padded, weight, **options)
    return result if bias is None else result + bias.view(-1, *[1] * count)


def reduced_tile(reduction: TileReduction, values: torch.Tensor, shape: Sequence[int]) -> Any:
    """What a convolution's kernel reduces its results to; `shape` is what is left of windows."""
    if reduction.moments is not None:
        moments = reduced(Reduction.MOMENTS, values, tuple(range(2, values.dim())))
        return moments if reduction.moments is TileMoments.ALONE else (values, *moments)
    if reduction.over_windows is not None:
        neutral = {Reduction.MAXIMUM: -torch.inf, Reduction.MINIMUM: torch.inf}
        sizes = list(zip(shape[2:], reduction.window, strict=True))
        widths = [(0, n * w - have) for (n, w), have in zip(sizes, values.shape[2:], strict=True)]
        values = F.pad(
            values,
            [width for pair in reversed(widths) for width in pair],
            value=neutral.get(reduction.over_windows, 0.0),
        )
        for at, (_, window) in enumerate(sizes):
            parts = torch.unflatten(values, 2 + at, (-1, window))
            found: torch.Tensor = reduced(reduction.over_windows, parts, (3 + at,))
            values = found.squeeze(3 + at)
    return (
        values
        if reduction.over_channels is None
        else reduced(reduction.over_channels, values, (1,))
    )
