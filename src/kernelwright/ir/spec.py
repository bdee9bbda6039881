"""What a well-formed graph is: a table of rules, checked after every pass."""

from collections.abc import Callable, Iterator

from kernelwright.ir.expr import OPERATIONS, Call, Coordinate, Operand, walk
from kernelwright.ir.graph import (
    Constant,
    Contract,
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Graph,
    Input,
    Node,
    Opaque,
    Parameter,
    Permute,
    Pointwise,
    Project,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    View,
)
from kernelwright.ir.types import Dim, ScalarType, TensorType, TupleType


class MalformedGraphError(AssertionError):
    """A bug in a pass of ours, never the user's mistake; the message names node and rule."""


def check(graph: Graph) -> Graph:
    """Return `graph` if it is well-formed; MalformedGraphError at the first broken rule."""
    seen: dict[str, Node] = {}
    for node in graph.nodes:
        for problem in _problems(node, seen):
            raise MalformedGraphError(f"{graph.name}: node {node.name}: {problem}\n\n{graph}")
        seen[node.name] = node
    missing = [name for name in graph.results if name not in seen]
    if missing:
        raise MalformedGraphError(f"{graph.name}: returns unknown nodes {missing}\n\n{graph}")
    return graph


def _problems(node: Node, seen: dict[str, Node]) -> Iterator[str]:
    if node.name in seen:
        yield "is defined twice"
    if not node.name.isidentifier():
        yield "has a name that is no Python identifier"
    unknown = [name for name in node.inputs if name not in seen]
    if unknown:
        yield f"reads {unknown}, not defined before it"
        return
    if node.origin is not None and not set(node.origin.refs) <= set(node.inputs):
        yield f"has an origin that reads {node.origin.refs}, but inputs {node.inputs}"
    rule = RULES[type(node.kind)]
    yield from rule(node, [seen[name] for name in node.inputs])


def _leaf(node: Node, inputs: list[Node]) -> Iterator[str]:
    if inputs:
        yield "is a leaf and takes no inputs"


def _pointwise(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Pointwise)
    if not isinstance(node.type, TensorType):
        yield "is pointwise, so its type must be a tensor"
        return
    if kind.expr.dtype != node.type.dtype:
        yield f"has an expression of {kind.expr.dtype} but type {node.type}"
    for part in walk(kind.expr):
        match part:
            case Operand(index, dtype):
                if index >= len(inputs):
                    yield f"uses operand %{index} of {len(inputs)}"
                elif getattr(inputs[index].type, "dtype", None) != dtype:
                    yield f"reads %{index} as {dtype}, but it is {inputs[index].type}"
            case Coordinate(dim):
                if dim not in (-1, -2) or -dim > node.type.rank:
                    yield f"asks for coordinate {dim} of {node.type}"
                elif node.type.shape[dim] == Dim.static(1):
                    yield f"asks where it stands along a dimension of size 1 of {node.type}"
            case Call(op, args, _):
                if OPERATIONS.get(op) != len(args):
                    yield f"calls {op} with {len(args)} arguments"
    for item in inputs:
        if isinstance(item.type, TensorType) and not _broadcasts(item.type, node.type):
            yield f"cannot broadcast {item.name}: {item.type} to {node.type}"


def _broadcasts(source: TensorType, target: TensorType) -> bool:
    if source.rank > target.rank:
        return False
    pairs = zip(reversed(source.shape), reversed(target.shape), strict=False)
    return all(a.hint in (1, b.hint) for a, b in pairs)


def _contract(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Contract)
    if len(inputs) != 2:
        yield "contracts two inputs"
        return
    sizes: dict[str, Dim] = {}
    for labels, item in ((kind.lhs, inputs[0]), (kind.rhs, inputs[1]), (kind.out, node)):
        if len(set(labels)) != len(labels):
            yield f"repeats a letter in {labels}"
        if item.tensor.rank != len(labels):
            yield f"gives {item.name}: {item.type} the letters {labels}"
            return
        for label, dim in zip(labels, item.tensor.shape, strict=True):
            if sizes.setdefault(label, dim).hint != dim.hint:
                yield f"has sizes {sizes[label]} and {dim} for {label}"
    if len({item.tensor.dtype for item in (*inputs, node)}) != 1:
        yield "mixes dtypes"
    everywhere = set(kind.lhs) | set(kind.rhs)
    lonely = {x for x in everywhere if (x in kind.lhs) + (x in kind.rhs) + (x in kind.out) < 2}
    if lonely or not set(kind.out) <= everywhere:
        yield f"has letters in one place only: {kind}"


def _view(node: Node, inputs: list[Node]) -> Iterator[str]:
    if len(inputs) != 1:
        yield "is a view of one input"
        return
    kind = node.kind
    assert isinstance(kind, View)
    source, target = inputs[0].tensor, node.tensor
    if source.dtype != target.dtype:
        yield "is a view and keeps the dtype"
    if not _VIEW_RULES[type(kind.map)](kind.map, source, target):
        yield f"is no {kind.map} from {source} to {target}"


def _hints(kind: TensorType) -> list[int]:
    return [dim.hint for dim in kind.shape]


# One row a view map: does it lead from the source's shape to the target's (at captured sizes)?
_VIEW_RULES: dict[type, Callable[..., bool]] = {
    Permute: lambda m, s, t: (
        sorted(m.dims) == list(range(s.rank)) and [_hints(s)[d] for d in m.dims] == _hints(t)
    ),
    Reshape: lambda m, s, t: s.numel_hint == t.numel_hint,
    Expand: lambda m, s, t: _broadcasts(s, t),
    Unsqueeze: lambda m, s, t: [*_hints(s)[: m.dim], 1, *_hints(s)[m.dim :]] == _hints(t),
    Squeeze: lambda m, s, t: (
        all(_hints(s)[d] == 1 for d in m.dims)
        and [size for d, size in enumerate(_hints(s)) if d not in m.dims] == _hints(t)
    ),
    Slice: lambda m, s, t: (
        m.step > 0
        and 0 <= m.start.hint <= m.stop.hint <= s.shape[m.dim].hint
        and t.shape[m.dim].hint == -(-(m.stop.hint - m.start.hint) // m.step)
    ),
    Select: lambda m, s, t: (
        0 <= m.index.hint < s.shape[m.dim].hint
        and [size for d, size in enumerate(_hints(s)) if d != m.dim] == _hints(t)
    ),
    Flip: lambda m, s, t: _hints(s) == _hints(t),
    DiagEmbed: lambda m, s, t: s.rank >= 1 and [*_hints(s), _hints(s)[-1]] == _hints(t),
    Diagonal: lambda m, s, t: (
        s.rank >= 2 and _hints(s)[-1] == _hints(s)[-2] and _hints(s)[:-1] == _hints(t)
    ),
}


def _opaque(node: Node, inputs: list[Node]) -> Iterator[str]:
    if node.origin is None:
        yield "is opaque and needs the call it stands for"


def _project(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Project)
    source = inputs[0].type if len(inputs) == 1 else None
    if not isinstance(source, TupleType) or kind.index >= len(source.items):
        yield f"takes item {kind.index} of {source}"


def _input(node: Node, inputs: list[Node]) -> Iterator[str]:
    yield from _leaf(node, inputs)
    if not isinstance(node.type, TensorType | ScalarType):
        yield "is an input, so it is a tensor or a scalar"


RULES: dict[type, Callable[[Node, list[Node]], Iterator[str]]] = {
    Input: _input,
    Parameter: _leaf,
    Constant: _leaf,
    Pointwise: _pointwise,
    Contract: _contract,
    View: _view,
    Opaque: _opaque,
    Project: _project,
}
