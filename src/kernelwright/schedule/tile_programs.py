"""Row programs over the channels of a convolution that its kernel runs in its tile."""

from dataclasses import dataclass

from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import Accumulator, Call, Expr, Literal, Operand, Total, transform, walk
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise, Project, Reduce, Reduction
from kernelwright.ir.types import DType

_VALUE = Accumulator(DType.F32)
_LARGEST, _SUM = Total(0, DType.F32), Total(1, DType.F32)
_BELOW = Call("sub", (_VALUE, _LARGEST), DType.F32)

SHARES: Expr = Call("div", (Call("exp", (_BELOW,), DType.F32), _SUM), DType.F32)
"""A channel's softmax."""
LOG_SHARES: Expr = Call("sub", (_BELOW, Call("log", (_SUM,), DType.F32)), DType.F32)
"""A channel's logarithm of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileProgram:
    """The maximum and the sum of exponentials over channels, and the one step that reads them."""

    step: Node
    result: Expr
    """The step, of the Totals and of what was reduced, the Accumulator."""


def program_after(editor: Editor, reduction: Node) -> TileProgram | None:
    """The program that a reduction begins, where a kernel of ours knows it."""
    kind = reduction.kind
    if not isinstance(kind, Reduce) or kind.op is not Reduction.EXP_SUM or kind.dims != (1,):
        return None
    (source,) = reduction.inputs
    known: dict[str, Expr] = {source: _VALUE}
    readers: set[str] = set()
    for name in editor.readers(reduction.name):
        total = editor.node(name)
        if not isinstance(total.kind, Project) or editor.is_shown(name):
            return None
        known[name] = (_LARGEST, _SUM)[total.kind.index]
        readers |= editor.readers(name)
    if len(readers) != 1 or editor.is_shown(reduction.name):
        return None
    step = editor.node(next(iter(readers)))
    if not isinstance(step.kind, Pointwise) or not known.keys() >= set(step.inputs):
        return None
    if step.tensor.dtype is not DType.F32:
        return None

    def placed(leaf: Expr) -> Expr:
        return known[step.inputs[leaf.index]] if isinstance(leaf, Operand) else leaf

    result = transform(step.kind.expr, placed)
    of_row = all(isinstance(part, Call | Total | Literal) for part in walk(result))
    is_known = of_row or result in (SHARES, LOG_SHARES)
    return TileProgram(step=step, result=result) if is_known else None
