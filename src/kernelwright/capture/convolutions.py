"""Convolutions: a `Conv` node, or a matrix product of one tap, or of patches side by side."""

from typing import Any

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.products import Term, line_up, plus, product, term_of, viewed
from kernelwright.capture.views import add_view
from kernelwright.ir.kinds import Conv, Permute, Reshape, Slice, Squeeze
from kernelwright.ir.sizes import ONE
from kernelwright.ir.sizes import product as product_of
from kernelwright.ir.types import Dim, TensorType

_SPACE = "xyz"
_SPATIAL = {f"{name}{n}d": n for name in ("conv", "conv_transpose") for n in (1, 2, 3)}
"""Dimensions that are convolved, by the operator's short name."""


def conv(builder: Builder, call: Call) -> str | None:
    """The node of a convolution; None of another call."""
    kind = conv_of(call)
    if kind is None:
        return None
    origin = builder.origin(call.node)
    return builder.add_call(call, kind, origin.operands, origin)


def conv_of(call: Call) -> Conv | None:
    """The convolution that a call makes; None where a number of it is known only at run time."""
    count = _SPATIAL.get(call.operator)
    if count is None:
        return None
    stride, dilation = (tuple(each(call.arguments[it], count)) for it in ("stride", "dilation"))
    padding = _in_front(call, count, dilation)
    groups = call.arguments["groups"]
    if not all(isinstance(number, int) for number in (*stride, *dilation, *padding, groups)):
        return None
    return Conv(
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=call.operator.startswith("conv_transpose"),
    )


def _in_front(call: Call, count: int, dilation: tuple[Any, ...]) -> tuple[Any, ...]:
    """Zeros in front of each dimension; "same" has the odd one behind."""
    match call.arguments["padding"]:
        case "valid":
            return (0,) * count
        case "same":
            taps = call.traced("weight").shape[2:]
            return tuple(step * (size - 1) // 2 for step, size in zip(dilation, taps, strict=True))
        case given:
            return tuple(each(given, count))


def convolution(builder: Builder, call: Call) -> str | None:
    """out[b, o, p] = sum over c of weight[o, c] input[b, c, p] + bias[o], at each place p.

    None for a kernel of more than one tap, for padding and for groups, and for a transposed
    convolution that leaves gaps; but patches of an image that lie side by side are rows.
    """
    if _is_of_patches(builder, call):
        return _product_of_patches(builder, call)
    weight = call.traced("weight")
    space = _SPACE[: weight.dim() - 2]
    strides = each(call.arguments["stride"], len(space))
    transposed = call.operator.startswith("conv_transpose")
    kind = builder.type_of(call.result)
    is_product = (
        all(_is(1, size) for size in weight.shape[2:])
        and _is(1, call.arguments["groups"])
        and _has_no_padding(call)
        and not (transposed and any(stride != 1 for stride in strides))
    )
    if not is_product or not isinstance(kind, TensorType):
        return None
    if kind.rank == len(space) + 2 and _are_one_place(builder, call, kind):
        return _product_of_one_place(builder, call, kind)
    batch = "b" if call.traced("input").dim() == len(space) + 2 else ""
    data = term_of(builder, call.arguments["input"], f"{batch}c{space}")
    out = f"{batch}o{space}"
    for letter, stride in zip(space, strides, strict=True):
        if stride != 1:
            size = kind.shape[out.index(letter)]
            data = _every(builder, call, data, letter, stride, size)
    matrix = term_of(builder, call.arguments["weight"], ("co" if transposed else "oc") + space)
    if space:
        taps = Squeeze(tuple(range(2, weight.dim())))
        matrix = viewed(builder, call, matrix, taps, matrix.letters[:2])
    total = product(builder, call, (matrix, data), out, kind)
    bias = call.arguments["bias"]
    if bias is None or total is None:
        return total
    row = line_up(builder, call, term_of(builder, bias, "o"), out)
    return plus(builder, call, total, row.name, "bias")


def _are_one_place(builder: Builder, call: Call, kind: TensorType) -> bool:
    """Whether images have one place, as after a mean over all: then they are rows."""
    data = term_of(builder, call.arguments["input"], "").type
    return all(size == ONE for size in (*data.shape[2:], *kind.shape[2:]))


def _product_of_one_place(builder: Builder, call: Call, kind: TensorType) -> str | None:
    """out[b, o] = sum over c of weight[o, c] input[b, c] + bias[o]."""
    places = tuple(range(2, kind.rank))
    space = _SPACE[: len(places)]
    of_matrix = "co" if call.operator.startswith("conv_transpose") else "oc"
    data = term_of(builder, call.arguments["input"], f"bc{space}")
    data = viewed(builder, call, data, Squeeze(places), "bc")
    matrix = term_of(builder, call.arguments["weight"], f"{of_matrix}{space}")
    matrix = viewed(builder, call, matrix, Squeeze(places), of_matrix)
    rows = TensorType(kind.dtype, kind.shape[:2])
    total = product(builder, call, (data, matrix), "bo", rows)
    total = plus(builder, call, total, call.arguments["bias"], "bias")
    return None if total is None else add_view(builder, call, total, Reshape(), kind)


_FEW_CHANNELS = 4
"""Channels of an image: of so few, neither cuDNN nor kernels of convolutions are fast with large
filters: docs/measured/networks.md."""


def _is_of_patches(builder: Builder, call: Call) -> bool:
    """Whether a filter of several taps reads each element of an image of few channels once."""
    image, weight = (term_of(builder, call.arguments[it], "").type for it in ("input", "weight"))
    taps, sides = weight.shape[2:], image.shape[2:]
    count = len(taps)
    strides, dilations = (each(call.arguments[it], count) for it in ("stride", "dilation"))
    return (
        count > 1
        and not call.operator.startswith("conv_transpose")
        and image.rank == count + 2
        and all(dim.is_static for dim in (*taps, *sides, weight.shape[1]))
        and weight.shape[1].hint <= _FEW_CHANNELS
        and _is(1, call.arguments["groups"])
        and _has_no_padding(call)
        and all(_is(1, step) for step in dilations)
        and all(_is(tap.hint, step) for tap, step in zip(taps, strides, strict=True))
        and all(side.hint % tap.hint == 0 for side, tap in zip(sides, taps, strict=True))
        and max(tap.hint for tap in taps) > 1
    )


def _product_of_patches(builder: Builder, call: Call) -> str | None:
    """out[b, o, p] = sum over k of weight[o, k] patches[b, p, k] + bias[o], where k is a channel
    and a place in the patch. The channels of a place follow each other in memory, as patches are
    mostly read."""
    kind = builder.type_of(call.result)
    if not isinstance(kind, TensorType):
        return None
    taps = term_of(builder, call.arguments["weight"], "").type.shape[2:]
    space, inner = _SPACE[: len(taps)], "ijk"[: len(taps)]
    data = term_of(builder, call.arguments["input"], f"bc{space}")
    cut = [it for pair in zip(kind.shape[2:], taps, strict=True) for it in pair]
    pairs = "".join(map("".join, zip(space, inner, strict=True)))
    data = _reshaped(builder, call, data, f"bc{pairs}", (*data.type.shape[:2], *cut))
    rows = f"b{space}c{inner}"
    order = tuple(data.letters.index(letter) for letter in rows)
    data = viewed(builder, call, data, Permute(order), rows)
    row = data.type.shape[-len(inner) - 1 :]
    data = _reshaped(
        builder, call, data, f"b{space}r", (*data.type.shape[: len(space) + 1], product_of(row))
    )
    matrix = term_of(builder, call.arguments["weight"], f"oc{inner}")
    matrix = _reshaped(builder, call, matrix, "or", (matrix.type.shape[0], data.type.shape[-1]))
    out = f"b{space}o"
    places = TensorType(kind.dtype, (kind.shape[0], *kind.shape[2:], kind.shape[1]))
    total = product(builder, call, (data, matrix), out, places)
    total = plus(builder, call, total, call.arguments["bias"], "bias")
    order = (0, len(space) + 1, *range(1, len(space) + 1))
    return None if total is None else add_view(builder, call, total, Permute(order), kind)


def _reshaped(
    builder: Builder, call: Call, term: Term, letters: str, shape: tuple[Dim, ...]
) -> Term:
    kind = TensorType(term.type.dtype, shape)
    return Term(add_view(builder, call, term.name, Reshape(), kind), letters, kind)


def _is(value: int, size: Any) -> bool:
    return isinstance(size, int) and size == value


def each(values: Any, count: int) -> list[Any]:
    """One value for each dimension: a list of one means the same for all."""
    listed = list(values)
    return listed * count if len(listed) == 1 else listed


def _has_no_padding(call: Call) -> bool:
    paddings = (call.arguments[name] for name in call.arguments if name.endswith("padding"))
    # "same" pads by one less than the kernel's size.
    return all(isinstance(p, str) or all(_is(0, size) for size in p) for p in paddings)


def _every(builder: Builder, call: Call, term: Term, letter: str, stride: int, size: Dim) -> Term:
    """The operand with every `stride`-th index of one dimension, `size` of them."""
    dim = term.letters.index(letter)
    shape = term.type.shape
    kind = TensorType(term.type.dtype, (*shape[:dim], size, *shape[dim + 1 :]))
    index_map = Slice(dim, Dim.static(0), shape[dim], stride)
    return Term(add_view(builder, call, term.name, index_map, kind), term.letters, kind)
