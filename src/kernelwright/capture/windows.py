"""Pooling: windows of the last dimensions, and what an average divides by."""

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

from kernelwright.capture.convolutions import each
from kernelwright.capture.making import ItemRule, Maker, NotMadeError, Part, Rows, Rule
from kernelwright.capture.reductions import mean_of
from kernelwright.capture.scope import cast, op
from kernelwright.ir.expr import Expr, Literal, Size
from kernelwright.ir.kinds import Pooling, Reduction, Window
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, TensorType


@dataclass(frozen=True, slots=True)
class _Geometry:
    """One number for each pooled dimension."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def _geometry(m: Maker, count: int) -> _Geometry:
    """The arguments of a pooling call; a stride that is not given is the size."""
    given = m.call.arguments
    size = _each(given["kernel_size"], count)
    usual = {"stride": size, "padding": (0,), "dilation": (1,)}
    rest = (_each(given.get(name) or values, count) for name, values in usual.items())
    return _Geometry(size, *rest)


def _each(values: Any, count: int) -> tuple[int, ...]:
    """One known number for each dimension."""
    if not all(isinstance(value, int) for value in values):
        raise NotMadeError
    return tuple(each(values, count))


def _pooled(m: Maker, value: Part, pooling: Pooling, g: _Geometry, shape: tuple[Dim, ...]) -> Part:
    kind = TensorType(value.dtype, shape)
    window = Window(pooling, g.size, g.stride, g.padding, g.dilation)
    return Part(m.node(window, kind, [value]), kind)


def _max_pool(count: int) -> Rule:
    def rule(m: Maker) -> Part:
        shape = tuple(m.builder.sizes.dim(size) for size in m.result.shape)
        return _pooled(m, m.tensor(), Pooling.MAXIMUM, _geometry(m, count), shape)

    return rule


def _first_item(rule: Rule) -> ItemRule:
    """A pooling call whose second result, where each maximum was, nobody asks for."""

    def items(m: Maker, used: frozenset[int]) -> dict[int, Part]:
        if used != {0}:
            raise NotMadeError
        return {0: rule(m)}

    return items


def _avg_pool(count: int) -> Rule:
    def rule(m: Maker) -> Part:
        value, g = m.wide(m.tensor()), _geometry(m, count)
        shape = tuple(m.builder.sizes.dim(size) for size in m.result.shape)
        total = _pooled(m, value, Pooling.SUM, g, shape)
        divisor = _divisor(m, g, value, shape)
        return m.apply(lambda x: op("div", x, divisor), total, name="mean", dtype=m.dtype)

    return rule


def _divisor(m: Maker, g: _Geometry, value: Part, shape: tuple[Dim, ...]) -> Expr:
    """How many elements a window counts, in the type of the computation."""
    given = m.call.arguments.get("divisor_override")
    if given is not None:
        return m.number(m.literal("divisor_override"))
    padded = bool(m.call.arguments["count_include_pad"])
    known = 1
    found: list[Expr] = []
    for at, size in enumerate(g.size):
        dim = len(shape) - len(g.size) + at
        whole = not m.call.arguments["ceil_mode"] and (padded or g.padding[at] == 0)
        if whole:
            known *= size
        else:
            extent = _extent(m, g, at, value.shape[dim], m.coordinate(shape, dim), padded)
            found.append(cast(extent, m.compute))
    if known > 1 or not found:
        found.append(m.number(known))
    return reduce(lambda a, b: op("mul", a, b), found)


def _extent(m: Maker, g: _Geometry, at: int, length: Dim, place: Expr, padded: Any) -> Expr:
    """Elements of a window along one dimension: those inside, or in the padding too."""
    edge = Size(length)
    start = op("sub", op("mul", place, _whole(g.stride[at])), _whole(g.padding[at]))
    end = op(
        "minimum", op("add", start, _whole(g.size[at])), op("add", edge, _whole(g.padding[at]))
    )
    if padded:
        return op("sub", end, start)
    return op("sub", op("minimum", end, edge), op("maximum", start, _whole(0)))


def _whole(value: int) -> Literal:
    return Literal(value, DType.I64)


# --- Convolutions of each channel by itself ----------------------------------------------------


_MOST_TAPS = 121
"""Weights of a channel, which threads keep in registers if they can."""
_MOST_FILTERS = 32
"""Filters of an operand's one channel, each of which reads it again."""


def _depthwise(dims: int) -> Rule:
    """out[b, c, p] = bias[c] + sum over j of weight[c, j] input[b, c, p * stride + j - padding]."""

    def rule(m: Maker) -> Part:
        value, weight = m.tensor("input"), m.tensor("weight")
        channels, taps = value.shape[-dims - 1], weight.shape[1:]
        filters = weight.shape[0]
        is_own = m.call.arguments["groups"] == channels.hint == filters.hint
        is_one = channels == ONE and filters.hint <= _MOST_FILTERS
        known = all(size.is_static for size in (channels, *weight.shape))
        if not (is_own or is_one) or not known or taps[0] != ONE or not m.dtype.is_float:
            raise NotMadeError
        size = tuple(tap.hint for tap in taps[1:])
        if prod(size) > _MOST_TAPS:
            raise NotMadeError
        shape = tuple(m.builder.sizes.dim(size) for size in m.result.shape)
        stride, dilation = (_each(m.call.arguments[it], dims) for it in ("stride", "dilation"))
        padding = _padding(m.call.arguments["padding"], size, dilation)
        kind = TensorType(m.compute, shape)
        window = Window(Pooling.DOT, size, stride, padding, dilation)
        batch, places = value.shape[: -dims - 1], value.shape[-dims:]
        seen = m.expand(m.wide(value), (*batch, filters, *places))
        parts = [seen, m.squeeze(weight, (1,))]
        total = Part(m.node(window, kind, parts), kind)
        if (bias := m.optional("bias")) is not None:
            column = m.reshape(bias, (filters, *[ONE] * dims))
            return m.apply(lambda x, y: op("add", x, y), total, column, dtype=m.dtype)
        return m.converted(total, m.dtype)

    return rule


def _padding(given: Any, size: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """On each side; "same" may need more on one of them."""
    if given == "valid":
        return (0,) * len(size)
    if given != "same":
        return _each(given, len(size))
    whole = [step * (taps - 1) for step, taps in zip(dilation, size, strict=True)]
    if any(padding % 2 for padding in whole):
        raise NotMadeError
    return tuple(padding // 2 for padding in whole)


# --- Adaptive pooling --------------------------------------------------------------------------


def _adaptive(m: Maker, value: Part) -> tuple[Rows, _Geometry, tuple[Dim, ...]]:
    """Dimensions that become one element; then windows of equal size for the others.

    NotMadeError where the windows differ, or may at other sizes.
    """
    target = tuple(m.builder.sizes.dim(size) for size in m.result.shape)
    first = len(value.shape) - len(m.call.arguments["output_size"])
    gone = [at for at in range(first, len(target)) if target[at] == ONE]
    sizes = []
    for at in range(first, len(target)):
        if at in gone or value.shape[at] == target[at]:
            sizes.append(1)
        elif value.shape[at].is_static and value.shape[at].hint % target[at].hint == 0:
            sizes.append(value.shape[at].hint // target[at].hint)
        else:
            raise NotMadeError
    size = tuple(sizes)
    geometry = _Geometry(size, size, (0,) * len(size), (1,) * len(size))
    return Rows(value, tuple(gone), keeps=True), geometry, target


def _adaptive_avg_pool(m: Maker) -> Part:
    value = m.wide(m.tensor())
    rows, g, shape = _adaptive(m, value)
    value = mean_of(m, value, rows=rows) if rows.dims else value
    count = 1
    for size in g.size:
        count *= size
    if count > 1:
        total = _pooled(m, value, Pooling.SUM, g, shape)
        value = m.apply(lambda x: op("div", x, m.number(count)), total, name="mean")
    return m.converted(value, m.dtype)


def _adaptive_max_pool(m: Maker) -> Part:
    value = m.tensor()
    rows, g, shape = _adaptive(m, value)
    value = m.reduce(Reduction.MAXIMUM, rows) if rows.dims else value
    return _pooled(m, value, Pooling.MAXIMUM, g, shape) if max(g.size) > 1 else value


RULES: dict[str, Rule] = {
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_avg_pool for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive_avg_pool for n in (2, 3)},
    **{f"conv{n}d": _depthwise(n) for n in (1, 2)},
}
"""By the operator's short name."""

ITEM_RULES: dict[str, ItemRule] = {
    **{f"max_pool{n}d_with_indices": _first_item(_max_pool(n)) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _first_item(_adaptive_max_pool) for n in (1, 2, 3)},
}
"""Operators with several results, by their short name."""
