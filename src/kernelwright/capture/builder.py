"""Collects the nodes of a Graph while the calls of a traced module are visited in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from kernelwright.capture.errors import ScalarNeededError, UnsupportedValueError
from kernelwright.capture.names import Names
from kernelwright.capture.sizes import Sizes
from kernelwright.capture.types import type_of
from kernelwright.ir.calls import Argument, AtenCall, Code, Record, Ref, Text
from kernelwright.ir.expr import Expr, Operand
from kernelwright.ir.graph import Node, Update
from kernelwright.ir.kinds import Kind, View
from kernelwright.ir.types import ValueType


@dataclass(frozen=True, slots=True)
class Number:
    """A number computed from call-time numbers; operands count `Builder.scalars`."""

    expr: Expr


Value = str | Number
"""What a traced node became: the name of a node of the graph, or a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an ATen operator in the traced module."""

    node: fx.Node
    name: str
    """Overload as under torch.ops: "aten.add.Tensor"."""
    operator: str
    """Short name: "add"."""
    arguments: dict[str, Any]
    """Arguments by the names of the operator's schema, with defaults filled in."""
    source: str | None
    """`file:line` in the user's file."""

    @property
    def result(self) -> Any:
        """The traced (fake) result."""
        return self.node.meta["val"]

    def traced(self, name: str) -> Any:
        """The traced value of an argument: a fake tensor or a number."""
        value = self.arguments[name]
        return value.meta["val"] if isinstance(value, fx.Node) else value


@dataclass(kw_only=True)
class Builder:
    """The graph so far. Rules for single operators add to it through `add`."""

    sizes: Sizes
    names: Names = field(default_factory=Names)
    """Names that are in use."""
    mutable: set[str] = field(default_factory=set)
    """Names of the arguments and buffers that a call changes."""
    nodes: list[Node] = field(default_factory=list)
    values: dict[fx.Node, Value] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)
    """Names of the input nodes that are call-time numbers."""
    updates: list[Update] = field(default_factory=list)
    """Updates of buffers by calls whose schema does not say that they change them."""
    items: dict[sympy.Symbol, Expr] = field(default_factory=dict)
    """What PyTorch's symbols for the values of call-time numbers stand for."""
    _places: dict[str, int] = field(default_factory=dict)
    """Where in `nodes` a name is."""

    def add(
        self,
        kind: Kind,
        result: ValueType,
        inputs: Sequence[str] = (),
        *,
        name: str,
        origin: AtenCall | None = None,
        operators: tuple[str, ...] = (),
        source: str | None = None,
    ) -> str:
        """Append a node under `name`, or `name_1` and so on where that is taken; its name."""
        unique = self.names.claim(name)
        self._places[unique] = len(self.nodes)
        self.nodes.append(
            Node(
                name=unique,
                kind=kind,
                type=result,
                inputs=tuple(inputs),
                origin=origin,
                operators=operators,
                source=source,
            )
        )
        return unique

    def add_call(
        self, call: Call, kind: Kind, inputs: Sequence[str], origin: AtenCall | None = None
    ) -> str:
        """Append the node that stands for one whole call, made again by `origin` or as it was."""
        origin = origin or self.origin_or_none(call.node)
        return self.add(
            kind,
            self.type_of(call.result),
            inputs,
            name=call.operator,
            origin=origin,
            operators=(call.operator,),
            source=call.source,
        )

    def replace(self, node: Node) -> None:
        """Put a node in the place of the one of its name."""
        self.nodes[self._places[node.name]] = node

    def forget(self, first: int, update: int) -> None:
        """Remove the nodes from `first` on and the updates from `update` on."""
        for node in self.nodes[first:]:
            del self._places[node.name]
            self.names.release(node.name)
        del self.nodes[first:]
        del self.updates[update:]

    def node(self, name: str) -> Node:
        """The node of this name."""
        return self.nodes[self._places[name]]

    def is_mutable(self, name: str) -> bool:
        """True for an argument or buffer that a call changes, and for a view of one."""
        node = self.node(name)
        while isinstance(node.kind, View):
            node = self.node(node.inputs[0])
        return node.name in self.mutable

    def tensor(self, value: Any) -> str:
        """The node that a traced tensor became; ScalarNeededError if it became a number."""
        found = self.values[value]
        if isinstance(found, Number):
            raise ScalarNeededError(f"{value} is used as a tensor")
        return found

    def type_of(self, value: Any) -> ValueType:
        """The Graph's type of a traced value."""
        return type_of(value, self.sizes)

    def origin(self, node: fx.Node) -> AtenCall:
        """The traced call as one of the Graph's."""
        args = tuple(self.argument(arg) for arg in node.args)
        kwargs = tuple((key, self.argument(arg)) for key, arg in node.kwargs.items())
        return AtenCall(str(node.target), args, kwargs)

    def origin_or_none(self, node: fx.Node) -> AtenCall | None:
        """The call of a node, with call-time numbers as Python numbers.

        None where one is computed first, or where the operator takes tensors in its place only.
        """
        try:
            call = self.origin(node)
        except ScalarNeededError:
            return None
        numbers = [
            isinstance(arg, fx.Node) and isinstance(self.values.get(arg), Number)
            for arg in node.args
        ]
        if not any(numbers):
            return call
        overload = _overload(node.target, numbers)
        return None if overload is None else AtenCall(overload, call.args, call.kwargs)

    def argument(self, value: Any) -> Argument:
        """A traced argument as one of the Graph's."""
        match value:
            case fx.Node():
                return self._node_argument(value)
            case torch.dtype() | torch.memory_format() | torch.layout():
                return Code(str(value))
            case torch.device():
                return Code("device")
            case str():
                return Text(value)
            case float() if value != value or value in (float("inf"), -float("inf")):
                return Code(f'float("{value}")')
            case None | bool() | int() | float():
                return value
            case torch.SymInt():
                return self.sizes.dim(value)
            case list() | tuple():
                kind = "list" if isinstance(value, list) else "tuple"
                return Record(kind, tuple(self.argument(item) for item in value))
            case dict():
                items = tuple(self.argument(item) for item in value.values())
                return Record("dict", items, tuple(map(str, value)))
        raise UnsupportedValueError(f"a {type(value).__name__} cannot be an argument of a call")

    def _node_argument(self, node: fx.Node) -> Argument:
        traced = node.meta.get("val")
        if node in self.values:
            return self._value_argument(self.values[node])
        match traced:
            case int() | torch.SymInt():
                return self.sizes.dim(traced)
            case float():
                return traced
            case torch.SymFloat() if not traced.node.expr.free_symbols & self.items.keys():
                return Code(self.sizes.text(self.sizes.resolve(traced.node.expr)))
            case torch.SymFloat():
                raise ScalarNeededError(f"{node} goes into a call")
        raise UnsupportedValueError(f"{node.format_node()} cannot be an argument of a call")

    def _value_argument(self, value: Value) -> Argument:
        match value:
            case str():
                return Ref(value)
            case Number(expr) if (name := self.scalar_name(expr)) is not None:
                return Ref(name)
        raise ScalarNeededError("a number computed from call-time numbers goes into a call")

    def scalar_name(self, expr: Expr) -> str | None:
        """The input node that `expr` is, if it is just that."""
        return self.scalars[expr.index] if isinstance(expr, Operand) else None


def _overload(target: Any, numbers: Sequence[bool]) -> str | None:
    """The overload of an operator that takes numbers in these places and tensors in the others."""
    packet = target.overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        types = [str(argument.type) for argument in overload._schema.arguments]
        takes = ["Tensor" not in kind for kind in types[: len(numbers)]]
        if takes == list(numbers) and "out" not in name:
            return str(overload)
    return None
