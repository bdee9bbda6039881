"""A graph at the sizes that it was captured with, and at no others."""

import ast
from collections.abc import Container
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kernelwright.ir.graph import Graph
from kernelwright.ir.types import Dim


def at_captured_sizes(graph: Graph) -> Graph:
    """The graph with every size of a tensor argument, and what follows from it, as a number.

    Numbers among the arguments of `forward` stay open, and so do sizes that follow from them.
    """
    numbers = frozenset(symbol.name for symbol in graph.symbols if symbol.dim is None)
    nodes = tuple(
        replace(
            node,
            kind=_fixed(node.kind, numbers),
            type=_fixed(node.type, numbers),
            origin=_fixed(node.origin, numbers),
            part_of=_fixed(node.part_of, numbers),
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, returns=_fixed(graph.returns, numbers))


def _fixed(value: Any, numbers: Container[str]) -> Any:
    match value:
        case Dim():
            names = (it.id for it in ast.walk(ast.parse(value.text)) if isinstance(it, ast.Name))
            is_open = any(name in numbers for name in names)
            return value if is_open else Dim.static(value.hint)
        case tuple():
            return tuple(_fixed(item, numbers) for item in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            own = {it.name: getattr(value, it.name) for it in fields(value) if it.init}
            return replace(value, **{name: _fixed(it, numbers) for name, it in own.items()})
    return value
