"""Calls of PyTorch that passes make themselves, and how Python spells a call that is left to it.

With capture, the only place that names PyTorch's operators.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import Argument, AtenCall, Record, Ref
from kernelwright.ir.kinds import (
    Conv,
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Permute,
    Reshape,
    Roll,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.recurrence import Cell
from kernelwright.ir.types import TensorType

EINSUM = "aten.einsum.default"
"""Operator of a contraction that no call of the user stands for."""


def call_of_view(index_map: ViewMap, source: str, kind: TensorType) -> AtenCall:
    """The call that makes a view of type `kind` of the node `source`, whatever made it before.

    It works for any strides, as views of a traced module need not.
    """
    return _CALLS[type(index_map)](index_map, Ref(source), kind)


CLONE = "aten.clone.default"
"""Operator of a copy."""

COPY_INTO = "aten.copy_.default"
"""Operator that gives a tensor, or a view of one, the elements of another."""

INDEX = "aten.index.Tensor"
"""Operator that picks elements by tensors of indices, copies of what it is given."""

LINEAR = "aten.linear.default"
"""Operator of a product of rows with a matrix's rows, for an operand of any rank."""

PRODUCT_CALLS = frozenset((LINEAR, "aten.addmm.default", "aten.matmul.default", "aten.mm.default"))
"""Operators whose result is that of a matrix product, row-major."""

CELLS: Mapping[str, Cell] = {f"aten.{cell}_cell.default": cell for cell in Cell}
"""Operators of one step of a layer."""


def call_of_linear(operands: Iterable[str]) -> AtenCall:
    """The call for rows, a matrix and, if there is one, a bias."""
    return AtenCall(LINEAR, tuple(map(Ref, operands)))


def call_of_concat(parts: Iterable[str], dim: int) -> AtenCall:
    """The call that puts the nodes `parts` one behind the other."""
    return AtenCall("aten.cat.default", (Record("list", tuple(map(Ref, parts))), dim))


def call_of_layer(
    cell: Cell, sequence: str, states: Sequence[str], weights: Sequence[str]
) -> AtenCall:
    """The call of one layer in one direction, steps first: with biases if `weights` has four."""
    first: Argument = Ref(states[0])
    if cell.states > 1:
        first = Record("list", tuple(map(Ref, states)))
    given = (Ref(sequence), first, Record("list", tuple(map(Ref, weights))), len(weights) > 2)
    return AtenCall(f"aten.{cell}.input", (*given, 1, 0.0, False, False, False))


def call_of_attention(operands: Iterable[str], kind: Attention) -> AtenCall:
    """The call for queries, keys and values without a mask."""
    others = (("is_causal", kind.causal), ("scale", kind.scale))
    return AtenCall(
        "aten.scaled_dot_product_attention.default",
        tuple(map(Ref, operands)),
        tuple(it for it in others if it[1]),
    )


def call_of_convolution(conv: Conv, data: str, weight: str) -> AtenCall:
    """The call of a convolution without a bias."""
    rank = len(conv.stride)
    stride, padding, dilation, none = (
        Record("list", items) for items in (conv.stride, conv.padding, conv.dilation, (0,) * rank)
    )
    operands = (Ref(data), Ref(weight), None, stride, padding)
    if not conv.transposed:
        return AtenCall(f"aten.conv{rank}d.default", (*operands, dilation, conv.groups))
    overload = "default" if rank == 1 else "input"
    target = f"aten.conv_transpose{rank}d.{overload}"
    return AtenCall(target, (*operands, none, conv.groups, dilation))


def call_of_gather(source: str, dim: int, index: str) -> AtenCall:
    """The call that picks slices along a dimension."""
    places = Record("list", (*[None] * dim, Ref(index)))
    return AtenCall("aten.index.Tensor", (Ref(source), places))


def call_of_count(counters: Iterable[str], amount: int) -> AtenCall:
    """The call that adds `amount` to each of the nodes `counters`, in place."""
    nodes = tuple(map(Ref, counters))
    return AtenCall("aten._foreach_add_.Scalar", (Record("list", nodes), amount))


def function_of(operator: str) -> str:
    """What Python calls for an operator such as "aten.conv2d.default"."""
    return PUBLIC.get(operator, f"torch.ops.{operator}")


def _numbers(*values: int) -> Record:
    return Record("list", tuple(values))


_CALLS: dict[type, Callable[[Any, Ref, TensorType], AtenCall]] = {
    Permute: lambda m, x, _: AtenCall("aten.permute.default", (x, _numbers(*m.dims))),
    Reshape: lambda _, x, kind: AtenCall("aten.reshape.default", (x, Record("list", kind.shape))),
    Expand: lambda _, x, kind: AtenCall("aten.expand.default", (x, Record("list", kind.shape))),
    Unsqueeze: lambda m, x, _: AtenCall("aten.unsqueeze.default", (x, m.dim)),
    Squeeze: lambda m, x, _: AtenCall("aten.squeeze.dims", (x, _numbers(*m.dims))),
    Slice: lambda m, x, _: AtenCall("aten.slice.Tensor", (x, m.dim, m.start, m.stop, m.step)),
    Select: lambda m, x, _: AtenCall("aten.select.int", (x, m.dim, m.index)),
    Flip: lambda m, x, _: AtenCall("aten.flip.default", (x, _numbers(*m.dims))),
    Roll: lambda m, x, _: AtenCall(
        "aten.roll.default", (x, Record("list", m.shifts), _numbers(*m.dims))
    ),
    DiagEmbed: lambda _, x, __: AtenCall("aten.diag_embed.default", (x,)),
    Diagonal: lambda _, x, __: AtenCall("aten.diagonal.default", (x, 0, -2, -1)),
}

PUBLIC: Mapping[str, str] = {
    "aten.cat.default": "torch.cat",
    "aten.conv1d.default": "torch.conv1d",
    "aten.conv2d.default": "torch.conv2d",
    "aten.conv3d.default": "torch.conv3d",
    "aten.conv_transpose1d.default": "torch.conv_transpose1d",
    "aten.conv_transpose2d.input": "torch.conv_transpose2d",
    "aten.conv_transpose3d.input": "torch.conv_transpose3d",
    "aten.linear.default": "torch.nn.functional.linear",
    "aten.matmul.default": "torch.matmul",
    "aten.roll.default": "torch.roll",
}
"""Public functions that take what an operator takes, in the same order. Python calls them sooner: a
concatenation of small tensors on the CPU in 1.7 us for 2.9, a convolution in 6.0 for 8.0 (torch
2.13)."""
