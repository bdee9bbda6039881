"""The convolution whose results alone a reduction reads, and the steps between them."""

from collections.abc import Callable

from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import (
    Accumulator,
    Expr,
    Operand,
    has_coordinates,
    operations,
    transform,
)
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Conv, Pointwise
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, TensorType
from kernelwright.schedule.element_groups import long_functions

_LONGEST_STEP = 32
"""Operations of a step that is there once for each of 64 registers."""
_MOST_LONG = 1
"""Long functions of it: more do not stay in the instruction cache."""


def source_of(
    editor: Editor, reduction: Node, after: Node | None = None
) -> tuple[Node, tuple[Node, ...]] | None:
    """The convolution whose results alone are reduced, and the steps between, last ones first.

    `after`: what reads them besides.
    """
    inside = {reduction.name} if after is None else {reduction.name, after.name}
    shape = editor.node(reduction.inputs[0]).tensor.shape
    steps: list[Node] = []
    length = longs = 0
    for name in reversed(editor.ordered(_before(editor, reduction, shape))):
        node = editor.node(name)
        if editor.is_shown(name) or not editor.readers(name) <= inside:
            return None
        inside.add(name)
        if isinstance(node.kind, Conv):
            is_new = node.kind.rounding is not None and node.kind.reduction is None
            return (node, tuple(steps)) if is_new else None
        assert isinstance(node.kind, Pointwise)
        length += operations(node.kind.expr)
        longs += long_functions(node)
        if has_coordinates(node.kind.expr) or length > _LONGEST_STEP or longs > _MOST_LONG:
            return None
        steps.append(node)
    return None


def _before(editor: Editor, reduction: Node, shape: tuple[Dim, ...]) -> set[str]:
    """Steps of this shape that end in the reduction, and the convolutions that they begin with."""
    found: set[str] = set()
    queue = [reduction.inputs[0]]
    while queue and len(found) <= _LONGEST_STEP:
        name = queue.pop()
        node = editor.node(name)
        kind = node.type
        if name in found or not isinstance(kind, TensorType) or kind.shape != shape:
            continue
        if isinstance(node.kind, Pointwise):
            queue += node.inputs
        elif not isinstance(node.kind, Conv):
            continue
        found.add(name)
    return found


def as_expression(conv: Node, steps: tuple[Node, ...], last: Node) -> tuple[tuple[str, ...], Expr]:
    """What the steps read besides, and the steps as one expression."""
    inside = {node.name: node for node in steps}
    operands: list[str] = []
    first = len(conv.inputs)

    def expand(name: str) -> Expr:
        if name == conv.name:
            return Accumulator(conv.tensor.dtype)
        node = inside[name]
        assert isinstance(node.kind, Pointwise)
        return transform(node.kind.expr, placing(node))

    def placing(node: Node) -> Callable[[Expr], Expr]:
        def placed(leaf: Expr) -> Expr:
            if not isinstance(leaf, Operand):
                return leaf
            source = node.inputs[leaf.index]
            if source in inside or source == conv.name:
                return expand(source)
            if source not in operands:
                operands.append(source)
            return Operand(first + operands.index(source), leaf.dtype)

        return placed

    value = expand(last.name)
    return tuple(operands), value


def is_by_channel(operand: Node, conv: Node) -> bool:
    """Whether an operand has one value in all, or one for each channel."""
    if not isinstance(operand.type, TensorType):
        return True
    channel = conv.tensor.rank - 1
    return all(
        dim == ONE or at == channel for at, dim in enumerate(reversed(operand.type.shape), start=1)
    )
