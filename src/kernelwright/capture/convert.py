"""From an exported program to a Graph: its nodes visited once in order, tables doing the work."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx

from kernelwright.capture.attentions import attention
from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.capture.calls import eager_items, opaque, project
from kernelwright.capture.composites import composite, composite_items
from kernelwright.capture.contractions import contraction
from kernelwright.capture.convolutions import conv
from kernelwright.capture.errors import CaptureError, ScalarNeededError, UnsupportedValueError
from kernelwright.capture.exporting import Exported
from kernelwright.capture.interface import add_inputs, collect_returns, collect_updates
from kernelwright.capture.names import RESERVED
from kernelwright.capture.pointwise import pointwise
from kernelwright.capture.recurrences import recurrent
from kernelwright.capture.sizes import Sizes
from kernelwright.capture.sources import source_of
from kernelwright.capture.structures import class_names
from kernelwright.capture.views import ITEM_RULES, item_view, view
from kernelwright.ir.graph import Graph

# Operators that compute nothing: what they check, the sizes of the graph say already.
_CHECKS = (
    *("_assert_tensor_metadata", "_assert_scalar", "_assert_async"),
    *("sym_constrain_range", "sym_constrain_range_for_size", "sym_size", "sym_stride", "sym_numel"),
)

# Operators that turn a tensor of one element into a Python number.
_TO_NUMBER = ("item", "_local_scalar_dense")

# In this order each is asked for the node of a call; the last always has one.
_TABLES = (view, pointwise, contraction, composite, conv, recurrent, attention, opaque)


def convert(exported: Exported) -> Graph:
    """The graph of an exported module.

    Raises ScalarNeededError where a call-time number is used as only a constant can be, and
    UnsupportedValueError for what graphs have no word for.
    """
    names = {leaf.name for leaf in exported.arguments.leaves}
    builder = Builder(sizes=Sizes({*names, *RESERVED}))
    builder.names.take(class_names(exported.program.call_spec.out_spec))
    guards = add_inputs(builder, exported)
    calls: dict[fx.Node, Call] = {}
    parts: dict[fx.Node, dict[int, str]] = {}
    for node in exported.program.graph.nodes:
        match node.op:
            case "get_attr":
                raise UnsupportedValueError("`forward` uses a control-flow operator of PyTorch")
            case "call_function" if node.target is operator.getitem:
                builder.values[node] = _item(builder, calls, parts, node)
            case "call_function" if isinstance(node.target, torch._ops.OpOverload):
                call = _describe(node, exported.path)
                if call.operator in _TO_NUMBER:
                    _to_number(builder, call)
                elif call.operator not in _CHECKS:
                    calls[node] = call
                    with _located(call):
                        _visit(builder, call, parts)
            case "call_function" if isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
                raise UnsupportedValueError(f"`forward` uses {node.target}")
    updates = collect_updates(builder, exported)
    return Graph(
        name=exported.name,
        returns=collect_returns(builder, exported),
        nodes=tuple(builder.nodes),
        symbols=tuple(builder.sizes.symbols),
        updates=updates,
        guards=(*guards, *builder.sizes.guards),
        notes=exported.notes,
    )


@contextmanager
def _located(call: Call) -> Iterator[None]:
    """Say of a value that graphs have no word for which line makes it."""
    try:
        yield
    except UnsupportedValueError as error:
        error.location = error.location or call.source
        raise


def _describe(node: fx.Node, path: Path | None) -> Call:
    """The call with its arguments by name."""
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = node.target._schema
    arguments: dict[str, Any] = {arg.name: arg.default_value for arg in schema.arguments}
    arguments |= zip((arg.name for arg in schema.arguments), node.args, strict=False)
    arguments |= node.kwargs
    namespace, _, operator_name = schema.name.partition("::")
    known = operator_name if namespace == "aten" else schema.name
    short = _OVERLOADS.get(str(node.target), known)
    return Call(
        node=node,
        name=str(node.target),
        operator=short,
        arguments=arguments,
        source=source_of(node, path),
    )


# Overloads that are another operator under the same name.
_OVERLOADS = {"aten.min.other": "minimum", "aten.max.other": "maximum"}


def _visit(builder: Builder, call: Call, parts: dict[fx.Node, dict[int, str]]) -> None:
    """Note what the call's result becomes."""
    if call.operator in ITEM_RULES:
        return
    items = composite_items(builder, call) or eager_items(builder, call)
    if items is not None:
        parts[call.node] = items
        return
    for table in _TABLES:
        value = table(builder, call)
        if value is not None:
            builder.values[call.node] = value
            return


def _item(
    builder: Builder,
    calls: dict[fx.Node, Call],
    parts: dict[fx.Node, dict[int, str]],
    node: fx.Node,
) -> str:
    """The node of one item of an earlier call's results."""
    whole, index = node.args
    assert isinstance(whole, fx.Node) and isinstance(index, int)
    if whole in parts:
        return parts[whole][index]
    if whole not in calls:
        raise UnsupportedValueError("a call of PyTorch returns lists inside of its results")
    call = calls[whole]
    return item_view(builder, call, index, node) or project(builder, call, index, node)


def _to_number(builder: Builder, call: Call) -> None:
    """Note which call-time number a traced Python number is."""
    value = builder.values[call.arguments["self"]]
    if not isinstance(value, Number):
        raise CaptureError("`forward` turns a tensor into a Python number", location=call.source)
    number = call.result
    if not isinstance(number, torch.SymFloat) or not number.node.expr.is_Symbol:
        raise ScalarNeededError(f"{call.name} of a call-time number")
    builder.values[call.node] = value
    builder.items[number.node.expr] = value.expr
