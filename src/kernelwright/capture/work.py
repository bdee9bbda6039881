"""FLOPs of calls that stay PyTorch's: products, convolutions, recurrent layers and attention.

A multiply-add counts two. Everything else that such a call does is small beside it, and calls of
other operators count nothing: what they cost is the bytes that they move.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.ir.calls import AtenCall, Record, Ref, Text
from kernelwright.ir.types import TensorType, TupleType, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shapes:
    """Sizes at capture of one call."""

    call: AtenCall
    operands: tuple[tuple[int, ...], ...]
    """Shapes of the tensors among the arguments, those inside of lists too, in order."""
    lists: tuple[tuple[tuple[int, ...], ...], ...]
    """Shapes of the tensors in each list among the arguments."""
    result: tuple[int, ...]
    """Shape of the result, or of the first of several."""


def flops_of_call(call: AtenCall, types: Mapping[str, ValueType], result: ValueType) -> int:
    """FLOPs of a call at the captured sizes; `types` are those of the nodes that it refers to."""
    _, _, operator = call.target.partition(".")
    rule = _RULES.get(operator.partition(".")[0])
    first = result.items[0] if isinstance(result, TupleType) else result
    if rule is None or not isinstance(first, TensorType):
        return 0
    lists = (arg.items for arg in call.args if isinstance(arg, Record))
    shapes = _Shapes(
        call=call,
        operands=_all_sizes(call.refs, types),
        lists=tuple(
            _all_sizes([item.name for item in items if isinstance(item, Ref)], types)
            for items in lists
        ),
        result=_sizes(first),
    )
    return rule(shapes)


def _all_sizes(names: Sequence[str], types: Mapping[str, ValueType]) -> tuple[tuple[int, ...], ...]:
    kinds = (types[name] for name in names)
    return tuple(_sizes(kind) for kind in kinds if isinstance(kind, TensorType))


def _sizes(kind: TensorType) -> tuple[int, ...]:
    return tuple(dim.hint for dim in kind.shape)


def _product_of(first: int) -> Callable[[_Shapes], int]:
    """A matrix product whose first factor is operand `first`: its last dimension is summed over."""
    return lambda shapes: 2 * prod(shapes.result) * shapes.operands[first][-1]


def _convolution(shapes: _Shapes) -> int:
    """Every element of the result takes the weights of one output channel."""
    return 2 * prod(shapes.result) * prod(shapes.operands[1][1:])


def _transposed_convolution(shapes: _Shapes) -> int:
    """Every element of the input takes the weights of one input channel."""
    return 2 * prod(shapes.operands[0]) * prod(shapes.operands[1][1:])


def _attention(shapes: _Shapes) -> int:
    """Queries (..., L, E) with keys (..., S, E), and what comes of it with values (..., S, V)."""
    query, key, value = shapes.operands[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrence(shapes: _Shapes) -> int:
    """Every step multiplies all weights: the matrices of the list that is the call's second or
    third argument, behind the input (..., features) and a list or tensor of states."""
    data = shapes.operands[0]
    weights = (sizes for sizes in shapes.lists[-1] if len(sizes) == 2)
    return 2 * prod(data[:-1]) * sum(map(prod, weights))


def _cell(shapes: _Shapes) -> int:
    """One step: the input (batch, features), the state or states, two weights and their biases."""
    matrices = [sizes for sizes in shapes.operands if len(sizes) == 2]
    return 2 * prod(shapes.result[:-1]) * sum(prod(sizes) for sizes in matrices[-2:])


def _einsum(shapes: _Shapes) -> int:
    """Two for each combination of the letters; without an ellipsis, of two factors at most."""
    (equation,) = (arg.value for arg in shapes.call.args if isinstance(arg, Text))
    labels = equation.partition("->")[0].replace(" ", "").split(",")
    if "..." in equation or len(labels) != len(shapes.operands) or len(labels) > 2:
        return 0
    sizes: dict[str, int] = {}
    for letters, operand in zip(labels, shapes.operands, strict=True):
        sizes.update(zip(letters, operand, strict=True))
    return 2 * prod(sizes.values())


_RULES: dict[str, Callable[[_Shapes], int]] = {
    **{name: _product_of(0) for name in ("linear", "mm", "bmm", "matmul", "mv", "dot", "inner")},
    **{name: _product_of(1) for name in ("addmm", "baddbmm", "addmv")},
    **{name: _convolution for name in ("conv1d", "conv2d", "conv3d")},
    **{f"conv_transpose{n}d": _transposed_convolution for n in (1, 2, 3)},
    **{name: _recurrence for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{name}_cell": _cell for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "scaled_dot_product_attention": _attention,
    "einsum": _einsum,
}
"""By the operator's name without its overload."""
