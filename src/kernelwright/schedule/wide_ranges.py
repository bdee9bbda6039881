"""Operands in float32 that exponentials make: they lie anywhere between 0 and their largest, and
planes or pairs of fp16 may not carry them."""

from kernelwright.ir.expr import Call, Expr, Operand, walk
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Concat, Pointwise, Project, Reduce, Reduction, View, Window
from kernelwright.ir.types import DType

_EXPONENTIALS = frozenset(("exp", "exp2"))


def why_wide(node: Node, graph: Graph) -> str | None:
    """Reason for leaving a convolution in float32 to the library: exponentials, as those of a
    softmax, make its input.

    They may be so far apart that fp16 planes do not carry them, which costs a kernel of ours up to
    30 times the library's time.
    """
    if node.tensor.dtype is not DType.F32:
        return None
    names = [node.inputs[0]]
    for name in names:
        maker = graph[name]
        if isinstance(maker.kind, Pointwise) and any(map(_is_exponential, walk(maker.kind.expr))):
            return "its input comes from exponentials, whose range fp16 planes may not carry"
        if isinstance(maker.kind, Pointwise | View | Concat | Window):
            names.extend(it for it in maker.inputs if it not in names)
    return None


def has_wide_factor(node: Node, graph: Graph) -> bool:
    """Whether a factor of a product is exponentials as they are: basis functions, weights of a
    softmax before it is normalised.

    Pairs carry what else is made of them, but for scattered elements, and a product goes on on the
    CUDA cores where they do not: 1.5 times the library's time. Shares of a row are such: of all but
    a few rows most are not far below the largest.
    """
    for name in node.inputs[:2]:
        source = graph[name]
        while isinstance(source.kind, View):
            source = graph[source.inputs[0]]
        if isinstance(source.kind, Pointwise) and _are_exponentials(source.kind.expr):
            return not _are_shares(source, graph)
    return False


def _are_shares(node: Node, graph: Graph) -> bool:
    """Whether exponentials are divided by the sum of their row, as a softmax does."""
    assert isinstance(node.kind, Pointwise)
    match node.kind.expr:
        case Call("div", (_, Operand(divisor))):
            total = graph[node.inputs[divisor]]
            source = graph[total.inputs[0]].kind if isinstance(total.kind, Project) else total.kind
            return isinstance(source, Reduce) and source.op in (Reduction.EXP_SUM, Reduction.SUM)
    return False


def _are_exponentials(expr: Expr) -> bool:
    match expr:
        case Call("mul" | "div", arguments):
            return any(map(_are_exponentials, arguments))
    return _is_exponential(expr)


def _is_exponential(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op in _EXPONENTIALS
