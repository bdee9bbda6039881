"""Views as calls of PyTorch."""

from collections.abc import Callable
from typing import Any

from kernelwright.ir.calls import AtenCall, Record, Ref
from kernelwright.ir.graph import (
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.types import TensorType


def call_of_view(index_map: ViewMap, source: str, kind: TensorType) -> AtenCall:
    """The call that makes a view of type `kind` of the node `source`, whatever made it before.

    It works for any strides, as views of a traced module need not.
    """
    return _CALLS[type(index_map)](index_map, Ref(source), kind)


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
    DiagEmbed: lambda _, x, __: AtenCall("aten.diag_embed.default", (x,)),
    Diagonal: lambda _, x, __: AtenCall("aten.diagonal.default", (x, 0, -2, -1)),
}
