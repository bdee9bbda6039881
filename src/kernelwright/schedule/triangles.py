"""Results that are zero on one side of a diagonal, which a product need not compute there."""

from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal


def kept_triangle(epilogue: Expr) -> Triangle | None:
    """The triangle that `epilogue` keeps, if it sets everything else to zero."""
    match epilogue:
        case Call("cast", (inner,), _):
            return kept_triangle(inner)
        case Call("where", (condition, _, Literal(0) as zero), _) if str(zero) != "-0.0":
            return _kept(condition)
    return None


def _kept(condition: Expr) -> Triangle | None:
    """The triangle in which column - row, or row - column, is at least or at most a number."""
    match condition:
        case Call(
            "ge" | "le" as compare,
            (Call("sub", (Coordinate(first), Coordinate(second)), _), Literal(int() as bound)),
            _,
        ):
            upper = (compare == "ge") == (first == -1)
            kept = Side.UPPER if upper else Side.LOWER
            return Triangle(kept=kept, diagonal=bound if (first, second) == (-1, -2) else -bound)
    return None
