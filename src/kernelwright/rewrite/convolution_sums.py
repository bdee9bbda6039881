"""Sums and averages of what a convolution makes are convolutions, or products, of sums."""

import re
from dataclasses import dataclass, replace
from math import ceil, prod

from kernelwright.ir.expr import Call, Expr, Literal, Operand, Size
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import (
    Contract,
    Conv,
    Pointwise,
    Pooling,
    Reduce,
    Reduction,
    Reshape,
    Slice,
    View,
    Window,
)
from kernelwright.ir.library_calls import call_of_convolution
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.sums import Linear, SumsMade, is_private, linear_steps
from kernelwright.rewrite.surroundings import Surroundings

_TRIED = 64
"""Sizes at which expressions of sizes are compared: more than the periods of their divisions."""


# --- Windows -----------------------------------------------------------------------------------


def _windows_of_convolution(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Sums over windows of p results, p apart, of a convolution y with filter w:
    #   usual, stride 1:     y[t] = sum_k x[t + k - P] w[k]. sum_(j<p) y[p t + j] =
    #                        sum_m x[p t + m - P] v[m] with v[m] = sum_(j<p) w[m - j]: stride p
    #   transposed, stride p:  y[o] = sum_i x[i] w[o - p i + P]. sum_(j<p) y[p t + j] =
    #                        sum_i x[i] v[t - i + Q] with v[m] = sum_(j<p) w[p (m - Q) + j + P]:
    #                        transposed, stride 1, padding Q = ceil(P / p)
    # So v are windows of the filter, where what lies outside is 0. Linear steps in between are
    # taken of the sums. (An Inf meets a sum of weights in place of each: its sign may differ.)
    window = node.kind
    if not isinstance(window, Window) or not _is_plain(window):
        return None
    spatial = len(window.size)
    steps, conv = _source(around, node, tuple(range(2, 2 + spatial)))
    if conv is None or not all(_adds_alike(around, step, spatial) for step in steps):
        return None
    assert isinstance(conv.kind, Conv)
    made = _WindowsMade(around, node, tuple(range(2, 2 + spatial)))
    small = made.convolution(conv, conv.kind, window)
    if small is None or not _stays_inside(conv, node, window):
        return None
    for step in reversed(steps):
        small = made.summed_step(step, small, conv.tensor.shape)
    made.nodes[-1] = replace(made.nodes[-1], name=node.name)
    return tuple(made.nodes)


def _is_plain(window: Window) -> bool:
    """Whether its windows lie side by side."""
    plain = window.op is Pooling.SUM and window.size == window.stride and min(window.size) > 1
    return plain and not any(window.padding) and set(window.dilation) == {1}


def _adds_alike(around: Surroundings, step: Linear, spatial: int) -> bool:
    """Whether a step adds the same, if anything, at all places."""
    kinds = [around.node(name).type for name in step.node.inputs if name != step.main]
    return step.call.op not in ("add", "sub") or all(
        isinstance(kind, TensorType) and all(size == ONE for size in kind.shape[-spatial:])
        for kind in kinds
    )


def _source(
    around: Surroundings, node: Node, dims: tuple[int, ...]
) -> tuple[list[Linear], Node | None]:
    """Linear steps before the node and the convolution that they begin with, if there is one."""
    steps, conv = linear_steps(around, around.node(node.inputs[0]), dims)
    fits = (
        isinstance(conv.kind, Conv)
        and len(conv.kind.stride) == len(dims)
        and conv.tensor.rank == len(dims) + 2
        and conv.tensor.dtype in (DType.F32, DType.F64)
        and conv.origin is not None
        and len(set(conv.inputs)) == len(conv.inputs)
        and set(conv.kind.dilation) == {1}
        and is_private(around, conv)
        and around.may_move(conv)
        and all(it.is_static for it in around.node(conv.inputs[1]).tensor.shape)
    )
    return steps, conv if fits else None


def _stays_inside(conv: Node, node: Node, window: Window) -> bool:
    """Whether no window, at any size, reaches beyond what it is over, as in ceil mode."""
    pairs = zip(conv.tensor.shape[2:], node.tensor.shape[2:], window.size, strict=True)
    return all(
        _are_equal(result.text, f"(({source.text}) - {size}) // {size} + 1")
        for source, result, size in pairs
    )


def _are_equal(text: str, other: str) -> bool:
    """Whether two expressions of sizes have the same value, of each size in turn and all alike."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", f"{text} {other}")))
    return all(
        eval(text, {}, values) == eval(other, {}, values)
        for value in range(_TRIED, 2 * _TRIED)
        for values in [{name: value + 7 * at for at, name in enumerate(names)}]
    )


class _WindowsMade(SumsMade):
    """The new nodes, gathered from the summed filter on."""

    count = 1

    def convolution(self, conv: Node, kind: Conv, window: Window) -> Node | None:
        """The sums as a convolution with a summed filter, and as much bias as they have terms."""
        weight = self._around.node(conv.inputs[1])
        taps = [dim.hint for dim in weight.tensor.shape[2:]]
        summed = _filter(kind, taps, window.size)
        spatial = len(taps)
        if summed is None or prod(summed.taps) >= prod(taps) * summed.share(window.size):
            return None
        shape = (*weight.tensor.shape[:2], *map(Dim.static, summed.taps))
        windows = Window(
            op=Pooling.SUM,
            size=window.size,
            stride=summed.strides,
            padding=summed.before,
            dilation=(1,) * spatial,
        )
        filter_ = self.add(self._node, windows, shape, (weight.name,), ())
        made = replace(kind, stride=summed.steps, padding=summed.padding)
        result = self.add(conv, made, self._node.tensor.shape, (conv.inputs[0], filter_.name))
        call = call_of_convolution(made, conv.inputs[0], filter_.name)
        self.nodes[-1] = result = replace(result, origin=call)
        self.count = prod(window.size)
        return self.biased(conv, result) if len(conv.inputs) > 2 else result

    def biased(self, conv: Node, result: Node) -> Node:
        """The sums with the convolution's bias, as often as they have terms."""
        bias = self._around.node(conv.inputs[2])
        column = (*bias.tensor.shape, *[ONE] * len(self._dims))
        row = self.add(bias, View(Reshape()), column, (bias.name,), ())
        dtype = result.tensor.dtype
        expr = Call("add", (Operand(0, dtype), self.times(Operand(1, dtype))), dtype)
        return self.add(conv, Pointwise(expr), result.tensor.shape, (result.name, row.name),
                        ("bias",))  # fmt: skip

    def times(self, arg: Expr) -> Expr:
        """What is added to each term."""
        dtype = self._node.tensor.dtype
        return Call("mul", (arg, Literal(float(self.count), dtype)), dtype)

    def _total(self, step: Linear, arg: Expr, inputs: list[str], shape: tuple[Dim, ...]) -> Expr:
        return self.times(self._same(step, arg, inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """A summed filter and the convolution with it; per dimension."""

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides of the filter's windows."""
    before: tuple[int, ...]
    """Zeros in front of it."""
    steps: tuple[int, ...]
    """Strides of the convolution."""
    padding: tuple[int, ...]

    def share(self, windows: tuple[int, ...]) -> int:
        """Results of the convolution before that each product counts for."""
        return 1 if set(self.steps) == {1} else prod(windows)


def _filter(conv: Conv, taps: list[int], windows: tuple[int, ...]) -> _Filter | None:
    if not conv.transposed:
        return None if set(conv.stride) != {1} else _Filter(
            taps=tuple(tap + size - 1 for tap, size in zip(taps, windows, strict=True)),
            strides=(1,) * len(taps),
            before=tuple(size - 1 for size in windows),
            steps=windows,
            padding=conv.padding,
        )  # fmt: skip
    if conv.stride != windows:
        return None
    padding = tuple(ceil(pad / size) for pad, size in zip(conv.padding, windows, strict=True))
    before = tuple(
        new * size - pad for new, size, pad in zip(padding, windows, conv.padding, strict=True)
    )
    return _Filter(
        taps=tuple(
            (tap - 1 + front) // size + 1
            for tap, front, size in zip(taps, before, windows, strict=True)
        ),
        strides=windows,
        before=before,
        steps=(1,) * len(taps),
        padding=padding,
    )


# --- Sums over all places ------------------------------------------------------------------------


def _sum_of_transposed(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Every input that a tap takes to a place inside of the result counts once:
    #   sum_o y[o] = sum_(c, k) w[c, k] (sum of x[c, i] with 0 <= i s - P + k < O)
    # For the taps behind the padding these are all; for those before it, all but the first.
    # (An Inf meets a sum of weights in place of each: its sign may differ.)
    if not isinstance(node.kind, Reduce) or node.kind.op is not Reduction.SUM:
        return None
    dims = node.kind.dims
    if dims != tuple(range(2, around.node(node.inputs[0]).tensor.rank)):
        return None
    steps, conv = _source(around, node, dims)
    if conv is None or not isinstance(conv.kind, Conv):
        return None
    if not conv.kind.transposed or conv.kind.groups != 1:
        return None
    made = _PlacesMade(around, node, dims)
    small = made.product_of_parts(conv, conv.kind)
    if small is None:
        return None
    for step in reversed(steps):
        small = made.summed_step(step, small, conv.tensor.shape)
    made.nodes[-1] = replace(made.nodes[-1], name=node.name)
    return tuple(made.nodes)


class _PlacesMade(SumsMade):
    """The new nodes, gathered from the sums of the input and of the filter on."""

    def product_of_parts(self, conv: Node, kind: Conv) -> Node | None:
        """The sum over all places of what a transposed convolution makes."""
        data, weight = (self._around.node(name) for name in conv.inputs[:2])
        edges = [self._edge(conv, kind, data, weight, at) for at in range(len(self._dims))]
        if any(edge is None for edge in edges):
            return None
        total: Node | None = None
        for number in range(2 ** len(edges)):
            firsts = [number >> at & 1 for at in range(len(edges))]
            if any(first and not edge for first, edge in zip(firsts, edges, strict=True)):
                continue
            part = self._part(data, weight, firsts, [edge or 0 for edge in edges])
            total = part if total is None else self._plus(conv, total, part)
        assert total is not None
        shape = self._node.tensor.shape
        small = self.add(conv, View(Reshape()), shape, (total.name,), ())
        if len(conv.inputs) < 3:
            return small
        bias = self._around.node(conv.inputs[2])
        column = (*bias.tensor.shape, *[ONE] * len(self._dims))
        row = self.add(bias, View(Reshape()), column, (bias.name,), ())
        dtype = small.tensor.dtype
        count = Size(product(conv.tensor.shape[2:]), dtype)
        added = Call("mul", (Operand(1, dtype), count), dtype)
        expr = Call("add", (Operand(0, dtype), added), dtype)
        return self.add(conv, Pointwise(expr), shape, (small.name, row.name), ("bias",))

    def _edge(self, conv: Node, kind: Conv, data: Node, weight: Node, at: int) -> int | None:
        """Taps along a dimension that the first input's element does not count for: all elements
        count for the others. None where more is left out."""
        stride, padding = kind.stride[at], kind.padding[at]
        taps, size = weight.tensor.shape[2 + at].hint, data.tensor.shape[2 + at]
        # Without its only element nothing would be left.
        if padding > stride or padding >= taps or (padding and size.hint < 2):
            return None
        # The last element's last tap is inside.
        least = f"(({size.text}) - 1) * {stride} - {padding} + {taps}"
        inside = _are_equal(f"({conv.tensor.shape[2 + at].text}) >= {least}", "True")
        return padding if inside else None

    def _part(self, data: Node, weight: Node, firsts: list[int], edges: list[int]) -> Node:
        """The product of sums for the taps before the padding, or for those behind it, along each
        dimension."""
        for at, (first, edge) in enumerate(zip(firsts, edges, strict=True)):
            dim, taps = 2 + at, weight.tensor.shape[2 + at]
            if first:
                data = self._sliced(data, dim, Dim.static(1), data.tensor.shape[dim])
            if edge:
                start, stop = (Dim.static(0), Dim.static(edge)) if first else (
                    Dim.static(edge), taps)  # fmt: skip
                weight = self._sliced(weight, dim, start, stop)
        sums = [self.reduced(it, self._dims) for it in (data, weight)]
        flat = [
            self.add(self._node, View(Reshape()), it.tensor.shape[:2], (it.name,), ())
            for it in sums
        ]
        shape = (flat[0].tensor.shape[0], flat[1].tensor.shape[1])
        names = (flat[0].name, flat[1].name)
        return self.add(self._node, Contract("nc", "co", "no"), shape, names, ("conv",))

    def _sliced(self, node: Node, dim: int, start: Dim, stop: Dim) -> Node:
        hint = stop.hint - start.hint
        size = Dim.static(hint) if stop.is_static else Dim(f"({stop.text}) - {start.text}", hint)
        shape = (*node.tensor.shape[:dim], size, *node.tensor.shape[dim + 1 :])
        return self.add(node, View(Slice(dim, start, stop, 1)), shape, (node.name,), ())

    def _plus(self, conv: Node, total: Node, part: Node) -> Node:
        dtype = total.tensor.dtype
        expr = Call("add", (Operand(0, dtype), Operand(1, dtype)), dtype)
        return self.add(conv, Pointwise(expr), total.tensor.shape, (total.name, part.name))


CONVOLUTION_SUM_RULES = (
    Rule(
        name="windows of a convolution become a convolution with windows of its filter",
        match=_windows_of_convolution,
        algebraic=True,
    ),
    Rule(
        name="sum of a transposed convolution becomes a product of sums",
        match=_sum_of_transposed,
        algebraic=True,
    ),
)
