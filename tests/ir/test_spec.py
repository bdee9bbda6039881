"""Every rule of the spec, broken on purpose."""

from dataclasses import replace

import pytest

from kernelwright.ir.expr import Call, Coordinate, Literal, Operand
from kernelwright.ir.graph import (
    AtenCall,
    Contract,
    Expand,
    Graph,
    Input,
    Node,
    Opaque,
    Permute,
    Pointwise,
    Project,
    Ref,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    View,
)
from kernelwright.ir.spec import MalformedGraphError, check
from kernelwright.ir.types import Dim, DType, TensorType, TupleType

F32 = DType.F32


def tensor(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, tuple(Dim.static(size) for size in shape))


X = Node(name="x", kind=Input("x"), type=tensor(2, 3))
Y = Node(name="y", kind=Input("y"), type=tensor(3, 4))
ADD = Call("add", (Operand(0, F32), Literal(1.0, F32)), F32)


def node(kind: object, result: object = X.type, inputs: tuple[str, ...] = ("x",), **more: object):
    return Node(name="z", kind=kind, type=result, inputs=inputs, **more)


def graph(z: Node) -> Graph:
    return Graph(name="g", nodes=(X, Y, z), returns=Ref("z"))


def view(index_map: object, *shape: int) -> Node:
    return node(View(index_map), tensor(*shape))


PRODUCT = node(Contract("ab", "bc", "ac"), tensor(2, 4), ("x", "y"))
START = Dim.static(1)


@pytest.mark.parametrize(
    "good",
    [
        node(Pointwise(ADD)),
        node(Pointwise(Coordinate(-2)), tensor(2, 3, dtype=DType.I64)),
        PRODUCT,
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
        (node(Pointwise(Coordinate(-3)), tensor(4, 2, 3, dtype=DType.I64)), "asks for coordinate"),
        (node(Pointwise(Coordinate(-2)), tensor(3, dtype=DType.I64), ()), "asks for coordinate"),
        (node(Pointwise(Coordinate(-2)), tensor(1, 3, dtype=DType.I64), ()), "of size 1"),
        (replace(PRODUCT, inputs=("x",)), "contracts two inputs"),
        (replace(PRODUCT, kind=Contract("aa", "bc", "ac")), "repeats a letter"),
        (replace(PRODUCT, kind=Contract("a", "bc", "ac")), "the letters"),
        (replace(PRODUCT, type=tensor(2, 5)), "has sizes"),
        (replace(PRODUCT, kind=Contract("ab", "bc", "ab")), "has sizes"),
        (replace(PRODUCT, type=tensor(2, 4, dtype=DType.F64)), "mixes dtypes"),
        (replace(PRODUCT, kind=Contract("ab", "dc", "ac")), "in one place only"),
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
