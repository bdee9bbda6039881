"""Graphs as text that a person can read and diff."""

from dataclasses import fields

from kernelwright.ir.attention import Attention
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Constant,
    Contract,
    Conv,
    Gather,
    Input,
    Loop,
    Opaque,
    Pad,
    Parameter,
    Pointwise,
    Project,
    Reduce,
    Relayout,
    Scan,
    View,
    ViewMap,
    Window,
    Write,
)
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import TensorType


def print_graph(graph: Graph) -> str:
    """One line a node, then what is returned, updated, guarded and noted."""
    symbols = ", ".join(
        f"{s.name} = {s.input}" + ("" if s.dim is None else f".shape[{s.dim}]")
        for s in graph.symbols
    )
    lines = [f"graph {graph.name}" + (f" where {symbols}" if symbols else "")]
    lines += [f"  {print_node(node)}" for node in graph.nodes]
    lines += [f"  update {update.path} = {update.value}" for update in graph.updates]
    lines += [f"  require {guard.condition}" for guard in graph.guards]
    lines += [f"  note {note}" for note in graph.notes]
    return "\n".join([*lines, f"  return {graph.returns}"]) + "\n"


def print_node(node: Node) -> str:
    """`name: type = kind(inputs; attributes)  # file:line`; a layout follows its type."""
    where = f"  # {node.source}" if node.source else ""
    layout = node.type.layout if isinstance(node.type, TensorType) else None
    order = "" if layout is None else f" in order {_show(layout.order)}"
    return f"{node.name}: {node.type}{order} = {_right_hand_side(node)}{where}"


def _right_hand_side(node: Node) -> str:
    inputs = ", ".join(node.inputs)
    match node.kind:
        case Input(argument):
            return f"input({argument})"
        case Parameter(path):
            return f"parameter({path})"
        case Constant(path, values):
            return f"constant({path or _shorten(values)})"
        case Pointwise(expr):
            return f"pointwise({inputs}; {expr})"
        case Contract():
            return f"contract({inputs}; {node.kind})"
        case Reduce(op, dims):
            return f"{op}({inputs}; dims={_show(dims)})"
        case Scan(op, dim, reverse, exclusive):
            flags = ["reverse"] * reverse + ["exclusive"] * exclusive
            return f"scan({', '.join([f'{inputs}; {op}', f'dim={dim}', *flags])})"
        case Loop(body):
            return f"loop({inputs}; {body})"
        case Window(op, size, stride, padding, dilation):
            numbers = {"size": size, "stride": stride, "padding": padding, "dilation": dilation}
            shown = ", ".join(f"{name}={_show(value)}" for name, value in numbers.items())
            return f"window({inputs}; {op}, {shown})"
        case Conv():
            return f"conv({inputs}; {_attributes(node.kind)})"
        case Gather() | Concat() | Write() | Pad() | Recurrent() | Attention():
            return f"{type(node.kind).__name__.lower()}({inputs}; {_attributes(node.kind)})"
        case View(index_map):
            attributes = _attributes(index_map)
            separator = "; " if attributes else ""
            return f"{type(index_map).__name__.lower()}({inputs}{separator}{attributes})"
        case Relayout():
            return f"relayout({inputs})"
        case Opaque(mutates, _):
            return f"opaque {node.origin}" + (f" mutates {', '.join(mutates)}" if mutates else "")
        case Project(index):
            return f"{inputs}[{index}]"


def _attributes(
    record: ViewMap | Conv | Gather | Concat | Write | Pad | Recurrent | Attention,
) -> str:
    """`name=value` of each field that says something."""
    values = ((field.name, getattr(record, field.name)) for field in fields(record))
    return ", ".join(f"{name}={_show(value)}" for name, value in values if value is not None)


def _show(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _shorten(values: tuple[float | int | bool, ...]) -> str:
    shown = ", ".join(repr(value) for value in values[:8])
    return f"[{shown}, ... {len(values)} values]" if len(values) > 8 else f"[{shown}]"
