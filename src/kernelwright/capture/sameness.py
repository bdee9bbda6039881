"""Whether a graph with open numbers is the graph that its numbers give, but for their values."""

import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.interpreter import TORCH_DTYPES, GraphRun
from kernelwright.ir.kinds import Input, Pointwise
from kernelwright.ir.types import Dim, TensorType

_CLOSE = 1e-5
"""Relative difference of one element that a number's own rounding to float32 explains."""


def is_same_work(open_graph: Graph, fixed: Graph, numbers: Mapping[str, float]) -> bool:
    """True if both do the same at the sizes and numbers of the capture.

    `open_graph` has the numbers of these names as inputs, `fixed` their values in their place. They
    differ where the module's code asks what a number is: its type, or its value.
    """
    ours, theirs = _AtCapture(open_graph, numbers), _AtCapture(fixed, {})
    mine = [node for node in open_graph.nodes if node.name not in numbers]
    others = [node for node in fixed.nodes if node.name not in numbers]
    return len(mine) == len(others) and all(
        a.name == b.name
        and a.source == b.source
        and a.operators == b.operators
        and ours.agrees(a, theirs, b)
        for a, b in zip(mine, others, strict=True)
    )


class _AtCapture(GraphRun):
    """What nodes say at the sizes of the capture; tensors are their own names."""

    def __init__(self, graph: Graph, numbers: Mapping[str, float]) -> None:
        super().__init__(graph, nn.Module(), {})
        self.values = {node.name: numbers.get(node.name, node.name) for node in graph.nodes}
        for symbol in graph.symbols:
            kind = graph[symbol.input].type
            if symbol.dim is None:
                self.symbols[symbol.name] = int(numbers[symbol.input])
            elif isinstance(kind, TensorType):
                self.symbols[symbol.name] = kind.shape[symbol.dim].hint

    def agrees(self, node: Node, other: "_AtCapture", its: Node) -> bool:
        """Whether two nodes say the same; expressions by one element each."""
        if self.settled(node.type) != other.settled(its.type):
            return False
        if isinstance(node.kind, Input):
            return node.kind == its.kind
        if isinstance(node.kind, Pointwise) and isinstance(its.kind, Pointwise):
            mine, theirs = self.element(node, node.kind), other.element(its, its.kind)
            return torch.allclose(mine, theirs, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        return self.said(node) == other.said(its)

    def said(self, node: Node) -> object:
        """The node's kind, what it reads, and its call."""
        read = tuple(self.values[name] for name in node.inputs)
        call: object = None
        if node.origin is not None:
            args = tuple(map(self.plain, node.origin.args))
            named = tuple((key, self.plain(value)) for key, value in node.origin.kwargs)
            call = (node.origin.target, args, named)
        return (self.settled(node.kind), read, call)

    def plain(self, argument: Any) -> object:
        """An argument of a call, lists and tuples alike as text."""
        return repr(self.argument(argument))

    def settled(self, value: object) -> object:
        """A record with its sizes as they were."""
        match value:
            case Dim(hint=hint):
                return hint
            case tuple():
                return tuple(self.settled(item) for item in value)
        if dataclasses.is_dataclass(value):
            fields = (getattr(value, field.name) for field in dataclasses.fields(value))
            return (type(value).__name__, *map(self.settled, fields))
        return value

    def element(self, node: Node, kind: Pointwise) -> torch.Tensor:
        """The expression's value for operands that are made up from their names."""
        self.current = [2] * node.tensor.rank
        operands = [self.operand(name) for name in node.inputs]
        return self.expression(kind.expr, operands).double()

    def operand(self, name: str) -> Any:
        """A number as it was; for a tensor an element of its type, the same for the same name."""
        value, kind = self.values[name], self.graph[name].type
        if not isinstance(kind, TensorType):
            return value
        share = zlib.crc32(name.encode()) / 2**32
        dtype = TORCH_DTYPES[kind.dtype]
        return torch.tensor(1 + share if dtype.is_floating_point else 1 + int(9 * share)).to(dtype)
