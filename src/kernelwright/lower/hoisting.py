"""Parts of a step that depend on few elements only, such as the factor that a norm makes of a
variance: as steps of their own they are not computed anew for each element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.expr import (
    Call,
    Expr,
    Operand,
    has_coordinates,
    operations,
    transform,
    walk,
)
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, TensorType, ValueType, broadcast

_SMALLER = 16
"""Times that all elements are more than those that the part is computed for."""
_DEAR = 2
"""Operations that are worth a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoisted:
    """A pointwise node in parts; the values are the same."""

    parts: tuple[Node, ...]
    """Those that depend on few elements."""
    rest: Node
    """The node, which reads them."""


def hoisted(node: Node, types: Mapping[str, ValueType], stem: str) -> Hoisted:
    """A pointwise node without what depends on few elements; `types`: those of its inputs.

    The parts are called `stem` with a number.
    """
    assert isinstance(node.kind, Pointwise)
    split = _Split(node, types, stem)
    expr = split.without_parts(node.kind.expr)
    return Hoisted(parts=tuple(split.parts), rest=_reading(node, expr, split.inputs))


class _Split:
    def __init__(self, node: Node, types: Mapping[str, ValueType], stem: str) -> None:
        self._node = node
        self._types = types
        self._stem = stem
        self.inputs = list(node.inputs)
        self.parts: list[Node] = []

    def without_parts(self, expr: Expr) -> Expr:
        if not isinstance(expr, Call):
            return expr
        shape = self._small_shape(expr)
        if shape is None or operations(expr) < _DEAR:
            return replace(expr, args=tuple(self.without_parts(arg) for arg in expr.args))
        part = replace(
            self._node,
            name=f"{self._stem}_{len(self.parts) + 1}",
            type=TensorType(expr.dtype, shape),
            origin=None,
            part_of=None,
            unanchored=False,
        )
        self.parts.append(_reading(part, expr, self._node.inputs))
        self.inputs.append(part.name)
        return Operand(len(self.inputs) - 1, expr.dtype)

    def _small_shape(self, expr: Expr) -> tuple[Dim, ...] | None:
        """The shape for which the expression can be computed, if that is few elements."""
        if has_coordinates(expr):
            return None
        kinds = [self._types[self._node.inputs[it.index]] for it in _operands(expr)]
        shapes = [kind.shape for kind in kinds if isinstance(kind, TensorType)]
        shape = _joint(shapes)
        if shape is None or not shapes:
            return None
        small = prod(dim.hint for dim in shape) * _SMALLER <= self._node.tensor.numel_hint
        return shape if small else None


def _operands(expr: Expr) -> list[Operand]:
    return [part for part in walk(expr) if isinstance(part, Operand)]


def _joint(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...] | None:
    """The shape to which these broadcast; None where that is not known."""
    joint = broadcast(*shapes)
    pairs = (zip(reversed(shape), reversed(joint), strict=False) for shape in shapes)
    is_known = all(own in (ONE, whole) for both in pairs for own, whole in both)
    return joint if is_known else None


def _reading(node: Node, expr: Expr, inputs: Sequence[str]) -> Node:
    """The node with this expression over these inputs, and only those that it reads."""
    used = list(dict.fromkeys(inputs[it.index] for it in _operands(expr)))

    def leaf(part: Expr) -> Expr:
        if not isinstance(part, Operand):
            return part
        return replace(part, index=used.index(inputs[part.index]))

    return replace(
        node, kind=Pointwise(transform(expr, leaf)), inputs=tuple(used), origin=None, part_of=None
    )
