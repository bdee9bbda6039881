"""Every rule of the spec, broken on purpose."""

from dataclasses import replace

import pytest

from kernelwright.ir.calls import AtenCall, Ref
from kernelwright.ir.expr import Call, Coordinate, Literal, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Accumulation,
    Concat,
    Contract,
    Expand,
    Gather,
    Input,
    Opaque,
    Pad,
    Permute,
    Pointwise,
    Pooling,
    Project,
    Reduce,
    Reduction,
    Reshape,
    Scan,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    View,
    Window,
)
from kernelwright.ir.spec import MalformedGraphError, check
from kernelwright.ir.types import Dim, DType, TensorType, TupleType

F32 = DType.F32


def tensor(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, tuple(Dim.static(size) for size in shape))


X = Node(name="x", kind=Input("x"), type=tensor(2, 3))
Y = Node(name="y", kind=Input("y"), type=tensor(3, 4))
PLACES = Node(name="i", kind=Input("i"), type=tensor(4, dtype=DType.I64))
ADD = Call("add", (Operand(0, F32), Literal(1.0, F32)), F32)


def node(kind: object, result: object = X.type, inputs: tuple[str, ...] = ("x",), **more: object):
    return Node(name="z", kind=kind, type=result, inputs=inputs, **more)


def graph(z: Node) -> Graph:
    return Graph(name="g", nodes=(X, Y, PLACES, z), returns=Ref("z"))


def view(index_map: object, *shape: int) -> Node:
    return node(View(index_map), tensor(*shape))


def reduction(op: Reduction, dims: tuple[int, ...], result: object) -> Node:
    return node(Reduce(op, dims), result)


def window(size: int, *, stride: int = 1, padding: int = 0, result: int = 3) -> Node:
    kind = Window(Pooling.MAXIMUM, (size,), (stride,), (padding,), (1,))
    return node(kind, tensor(2, result))


def by_channel(size: int, channels: int = 1, weights: str = "x") -> Node:
    """A depthwise convolution of two rows of three channels."""
    kind = Window(Pooling.DOT_LAST, (size, channels), (1, 1), (0, 0), (1, 1))
    return node(kind, tensor(3 - size, 4 - channels), ("x", weights))


PRODUCT = node(Contract("ab", "bc", "ac"), tensor(2, 4), ("x", "y"))
START = Dim.static(1)


@pytest.mark.parametrize(
    "good",
    [
        node(Pointwise(ADD)),
        node(Pointwise(Coordinate(-2)), tensor(2, 3, dtype=DType.I64)),
        node(Pointwise(Coordinate(-3)), tensor(4, 2, 3, dtype=DType.I64)),
        PRODUCT,
        reduction(Reduction.SUM, (0, 1), tensor(1, 1)),
        reduction(Reduction.ARGMAX, (0,), tensor(1, 3, dtype=DType.I64)),
        reduction(Reduction.MOMENTS, (1,), TupleType((tensor(2, 1), tensor(2, 1)))),
        node(Scan(Accumulation.SUM, 1)),
        window(3, stride=1, padding=1),
        window(2, stride=2, padding=1, result=2),
        window(1, stride=2, result=2),
        by_channel(2),
        node(Gather(1), tensor(2, 4), ("x", "i")),
        node(Concat(0), tensor(4, 3), ("x", "x")),
        node(Pad((1, 0), (0, -1), 0.0), tensor(3, 2)),
        view(Permute((1, 0)), 3, 2),
        view(Reshape(), 6),
        view(Expand(), 5, 2, 3),
        view(Unsqueeze(1), 2, 1, 3),
        view(Slice(1, START, Dim.static(3), 1), 2, 2),
        view(Select(0, START), 3),
    ],
)
def test_well_formed(good: Node) -> None:
    assert check(graph(good)) == graph(good)


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (node(Pointwise(ADD), inputs=("q",)), "not defined before"),
        (replace(node(Pointwise(ADD)), name="x"), "defined twice"),
        (replace(node(Pointwise(ADD)), name="a b"), "no Python identifier"),
        (node(Input("z")), "takes no inputs"),
        (node(Pointwise(ADD), tensor(2, 3, dtype=DType.I64)), "has an expression of"),
        (node(Pointwise(Operand(1, F32))), "uses operand %1 of 1"),
        (node(Pointwise(Operand(0, DType.F64)), tensor(2, 3, dtype=DType.F64)), "reads %0 as"),
        (node(Pointwise(Call("add", (Operand(0, F32),), F32))), "calls add with 1"),
        (node(Pointwise(Call("frob", (Operand(0, F32),), F32))), "calls frob"),
        (node(Pointwise(ADD), tensor(2, 4)), "cannot broadcast"),
        (node(Pointwise(Coordinate(0)), tensor(2, 3, dtype=DType.I64)), "asks for coordinate"),
        (node(Pointwise(Coordinate(-2)), tensor(3, dtype=DType.I64), ()), "asks for coordinate"),
        (node(Pointwise(Coordinate(-2)), tensor(1, 3, dtype=DType.I64), ()), "of size 1"),
        (replace(PRODUCT, inputs=("x",)), "contracts two inputs"),
        (replace(PRODUCT, kind=Contract("aa", "bc", "ac")), "repeats a letter"),
        (replace(PRODUCT, kind=Contract("a", "bc", "ac")), "the letters"),
        (replace(PRODUCT, type=tensor(2, 5)), "has sizes"),
        (replace(PRODUCT, kind=Contract("ab", "bc", "ab")), "has sizes"),
        (replace(PRODUCT, type=tensor(2, 4, dtype=DType.F64)), "mixes dtypes"),
        (replace(PRODUCT, kind=Contract("ab", "dc", "ac")), "in one place only"),
        (reduction(Reduction.SUM, (0,), tensor(3)), "reduces"),
        (reduction(Reduction.SUM, (), tensor(2, 3)), "reduces the dimensions"),
        (reduction(Reduction.SUM, (1, 0), tensor(1, 1)), "reduces the dimensions"),
        (reduction(Reduction.SUM, (2,), tensor(2, 3)), "reduces the dimensions"),
        (reduction(Reduction.ANY, (1,), tensor(2, 1)), "takes no any"),
        (reduction(Reduction.ARGMAX, (1,), tensor(2, 1)), "reduces"),
        (reduction(Reduction.MOMENTS, (1,), tensor(2, 1)), "has 2 totals"),
        (reduction(Reduction.SUM, (1,), TupleType((tensor(2, 1),))), "has 1 totals"),
        (replace(reduction(Reduction.SUM, (1,), tensor(2, 1)), inputs=()), "reduces one input"),
        (node(Scan(Accumulation.SUM, 2)), "along dimension 2"),
        (node(Scan(Accumulation.SUM, 0), tensor(2, 4)), "keeps the type"),
        (node(Scan(Accumulation.SUM, 0), tensor(2, 3, dtype=DType.F64)), "keeps the type"),
        (window(2, stride=1), "finds 3 windows in 3"),
        (replace(window(1), type=tensor(4, 3)), "pools"),
        (window(1, stride=0), "below 1"),
        (by_channel(1), "weights of another shape"),
        (by_channel(2, weights="y"), "weights of another shape"),
        (by_channel(2, channels=2), "several channels"),
        (replace(by_channel(2), inputs=("x",)), "only products have weights"),
        (node(Window(Pooling.SUM, (1,), (1, 1), (0,), (1,))), "other than 1 numbers"),
        (node(Window(Pooling.SUM, (1,), (1,), (0,), (1,)), tensor(2, 3, dtype=DType.F64)), "type"),
        (node(Gather(0), inputs=("x",)), "by another"),
        (node(Gather(0), tensor(2, 3, 3), ("x", "y")), "is told places by"),
        (node(Gather(2), tensor(2, 3, 4), ("x", "i")), "along dimension 2"),
        (node(Gather(1), tensor(4, 3), ("x", "i")), "gathers"),
        (node(Concat(0), tensor(3, 3), ("x", "x")), "another size"),
        (node(Concat(0), tensor(5, 3), ("x", "y")), "cannot join y"),
        (node(Concat(2), tensor(4, 3), ("x", "x")), "along dimension 2"),
        (node(Pad((1,), (1,), 0.0), tensor(4, 3)), "of 2 dimensions"),
        (node(Pad((1, 0), (1, -1), 0.0), tensor(4, 3)), "pads"),
        (node(Pad((1, 0), (1, 0), 0.0), tensor(4, 3, dtype=DType.F64)), "keeps the element type"),
        (view(Permute((0, 1)), 3, 2), "is no Permute"),
        (view(Reshape(), 5), "is no Reshape"),
        (view(Expand(), 2, 4), "is no Expand"),
        (view(Unsqueeze(0), 2, 1, 3), "is no Unsqueeze"),
        (view(Squeeze((0,)), 3), "is no Squeeze"),
        (view(Slice(1, START, Dim.static(9), 1), 2, 8), "is no Slice"),
        (view(Select(0, Dim.static(2)), 3), "is no Select"),
        (node(View(Reshape()), tensor(6, dtype=DType.F64)), "keeps the dtype"),
        (node(View(Reshape()), inputs=("x", "y")), "view of one input"),
        (node(Opaque()), "needs the call"),
        (node(Opaque(), origin=AtenCall("aten.f.default", (Ref("y"),))), "an origin that reads"),
        (node(Project(0)), "takes item 0"),
        (node(Input("z"), TupleType(()), ()), "a tensor or a scalar"),
    ],
)
def test_malformed(bad: Node, rule: str) -> None:
    with pytest.raises(MalformedGraphError, match=rule):
        check(graph(bad))


def test_unknown_result() -> None:
    with pytest.raises(MalformedGraphError, match="returns unknown nodes"):
        check(Graph(name="g", nodes=(X,), returns=Ref("z")))


def test_zero_and_minus_zero_are_two_literals() -> None:
    assert Literal(0.0, F32) != Literal(-0.0, F32)
    assert Literal(1, DType.I64) != Literal(True, DType.I64)
    assert Literal(float("nan"), F32) == Literal(float("nan"), F32)
