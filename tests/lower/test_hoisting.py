"""Parts of steps that depend on few elements."""

from kernelwright.ir.expr import Call, Coordinate, Expr, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.hoisting import Hoisted, hoisted

F32 = DType.F32


def _type(*sizes: int) -> TensorType:
    return TensorType(F32, tuple(Dim.static(size) for size in sizes))


TYPES = {"x": _type(8, 4, 64), "spread": _type(8, 4, 1), "weight": _type(4, 1), "line": _type(64)}


def _call(op: str, *args: Expr) -> Call:
    return Call(op, args, F32)


def _hoisted(expr: Expr, *inputs: str) -> Hoisted:
    node = Node(name="y", kind=Pointwise(expr), type=TYPES["x"], inputs=inputs)
    return hoisted(node, TYPES, "y_part")


X, A, B = (Operand(index, F32) for index in range(3))


def test_what_rows_share_is_a_step_of_its_own() -> None:
    found = _hoisted(_call("mul", X, _call("mul", _call("rsqrt", A), B)), "x", "spread", "weight")
    (part,) = found.parts
    assert (part.name, part.inputs, part.tensor.shape) == (
        "y_part_1",
        ("spread", "weight"),
        TYPES["spread"].shape,
    )
    assert str(part.kind.expr) == "mul(rsqrt(%0), %1)"  # type: ignore[union-attr]
    assert found.rest.inputs == ("x", "y_part_1")
    assert str(found.rest.kind.expr) == "mul(%0, %1)"  # type: ignore[union-attr]


def test_cheap_parts_and_parts_of_many_elements_stay() -> None:
    cheap = _call("mul", X, _call("rsqrt", A))
    assert _hoisted(cheap, "x", "spread").parts == ()
    wide = _call("mul", X, _call("exp", _call("add", A, B)))
    # Together these two have as many elements as the result.
    assert _hoisted(wide, "x", "spread", "line").parts == ()


def test_what_depends_on_its_place_stays() -> None:
    place = _call("add", Coordinate(-1, F32), _call("exp", A))
    assert _hoisted(_call("mul", X, place), "x", "spread").parts == ()
