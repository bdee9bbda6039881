"""Values that do not depend on the data."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from kernelwright.ir.expr import Call, Expr, Literal, Operand, transform
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Constant, Pointwise, Project, Reduce, Reduction, Reshape, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import DType, TensorType, TupleType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


def _one_element(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Of a row of one element x every sum, product, maximum and minimum is x; the place of the
    # largest is 0.
    if not isinstance(node.kind, Reduce) or isinstance(node.type, TupleType):
        return None
    source = around.node(node.inputs[0])
    if any(source.tensor.shape[dim] != ONE for dim in node.kind.dims):
        return None
    first = Operand(0, source.tensor.dtype)
    expr: Expr = first
    if node.kind.op in (Reduction.ARGMAX, Reduction.ARGMIN):
        expr = Literal(0, DType.I64)
    return (replace(node, kind=Pointwise(expr), origin=None),)


def _one_element_pair(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Its mean is x and its squared distance from that (x - x)^2, which is NaN where x is no number
    # or infinite; its maximum is x, and the sum of exp(x - x) is 1, 0 for -inf, NaN for inf.
    if not isinstance(node.kind, Project):
        return None
    pair = around.node(node.inputs[0])
    if not isinstance(pair.kind, Reduce):
        return None
    source = around.node(pair.inputs[0])
    if any(source.tensor.shape[dim] != ONE for dim in pair.kind.dims):
        return None
    dtype = source.tensor.dtype
    x = Operand(0, dtype)
    expr: Expr = x
    if node.kind.index == 1:
        distance = Call("sub", (x, x), dtype)
        if pair.kind.op is Reduction.MOMENTS:
            expr = Call("mul", (distance, distance), dtype)
        else:
            lowest = Call("eq", (x, Literal(-inf, dtype)), DType.BOOL)
            term = Call("exp", (distance,), dtype)
            expr = Call("where", (lowest, Literal(0.0, dtype), term), dtype)
    return (replace(node, kind=Pointwise(expr), inputs=(source.name,), origin=None),)


def _constant_operand(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # A tensor of one number that is known at capture is that number.
    if not isinstance(node.kind, Pointwise):
        return None
    known: dict[int, Literal] = {}
    for index, name in enumerate(node.inputs):
        match around.node(name):
            case Node(kind=Constant(None, (value,)), type=TensorType(dtype, _)):
                known[index] = Literal(value, dtype)
    if not known:
        return None
    kept = [index for index in range(len(node.inputs)) if index not in known]

    def place(leaf: Expr) -> Expr:
        if not isinstance(leaf, Operand):
            return leaf
        return known.get(leaf.index) or Operand(kept.index(leaf.index), leaf.dtype)

    expr = transform(node.kind.expr, place)
    inputs = tuple(node.inputs[index] for index in kept)
    return (replace(node, kind=Pointwise(expr), inputs=inputs, origin=None),)


Range = tuple[float, float]
_ANYTHING: Range = (-inf, inf)


def _known_value(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Between a lower and an upper bound that are equal there is one number. (NaN, which has no
    # place between them, would come through.)
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    if isinstance(node.kind.expr, Literal) or not node.type.dtype.is_float:
        return None
    low, high = _range(node.kind.expr, _ranges(around, node, depth=4))
    if low != high:
        return None
    literal = Literal(low, node.type.dtype)
    return (replace(node, kind=Pointwise(literal), inputs=(), origin=None),)


def _difference_with_itself(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # x - x = 0 for every finite x.
    match node.kind:
        case Pointwise(Call("sub", (Operand(a, _), Operand(b, _)), dtype)) if dtype.is_float:
            left, right = (around.node(node.inputs[i]) for i in (a, b))
            if left.name == right.name and left.type == node.type:
                zero = Pointwise(Literal(0.0, dtype))
                return (replace(node, kind=zero, inputs=(), origin=None),)
    return None


def _ranges(around: Surroundings, node: Node, depth: int) -> dict[int, Range]:
    """Bounds of the node's operands, from the pointwise nodes that make them."""
    found: dict[int, Range] = {}
    for index, name in enumerate(node.inputs):
        source = around.node(name)
        while isinstance(source.kind, View) and isinstance(source.kind.map, Reshape):
            source = around.node(source.inputs[0])
        if depth and isinstance(source.kind, Pointwise):
            found[index] = _range(source.kind.expr, _ranges(around, source, depth - 1))
    return found


def _range(expr: Expr, operands: Mapping[int, Range]) -> Range:
    """Bounds of the values that are numbers."""
    match expr:
        case Literal(value, _):
            return float(value), float(value)
        case Operand(index, _):
            return operands.get(index, _ANYTHING)
        case Call(op, args, _) if op in _RANGES:
            bounds = [_range(arg, operands) for arg in args]
            return _RANGES[op](bounds)
    return _ANYTHING


def _clamped(bounds: list[Range]) -> Range:
    x, low, high = bounds
    return (
        min(max(x[0], low[0]), high[0]),
        min(max(x[1], low[1]), high[1]),
    )


_RANGES: dict[str, Callable[[list[Range]], Range]] = {
    "maximum": lambda b: (max(b[0][0], b[1][0]), max(b[0][1], b[1][1])),
    "minimum": lambda b: (min(b[0][0], b[1][0]), min(b[0][1], b[1][1])),
    "clamp": _clamped,
    "relu": lambda b: (max(b[0][0], 0.0), max(b[0][1], 0.0)),
    "sigmoid": lambda b: (0.0, 1.0),
    "tanh": lambda b: (-1.0, 1.0),
    "abs": lambda b: (0.0, inf),
    "neg": lambda b: (-b[0][1], -b[0][0]),
}


CONSTANT_RULES = (
    Rule(name="constant of one element written as a number", match=_constant_operand),
    Rule(name="reduction of one element", match=_one_element),
    Rule(name="reduction of one element", match=_one_element_pair),
    Rule(name="value between equal bounds", match=_known_value, algebraic=True),
    Rule(name="difference of a value with itself", match=_difference_with_itself, algebraic=True),
)
