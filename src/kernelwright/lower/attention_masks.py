"""Steps on scores as what attention takes: a scale, factors of q and of k, and one mask."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.ir.attention import Masking, Weighing
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand, transform, walk
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.sizes import ONE, are_equal
from kernelwright.ir.types import Dim, DType, TensorType, broadcast
from kernelwright.lower.coordinate_masks import sides_of
from kernelwright.lower.score_steps import FAR, Do, ScoreStep
from kernelwright.lower.view_chains import Parts, arranged, leaves
from kernelwright.rewrite.surroundings import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The dimensions that attention has: runs of parts of those of the shares."""

    heads: tuple[Parts, ...]
    """Batch and head, or fewer."""
    rows: Parts
    keys: Parts

    @property
    def of_scores(self) -> list[Parts]:
        """Dimensions of the scores."""
        return [*self.heads, self.rows, self.keys]


@dataclass(slots=True, kw_only=True)
class Program:
    """What the steps come to; nodes on the way are in `made`."""

    dtype: DType
    """Element type of q, k and v."""
    scale: float = 1.0
    causal: bool = False
    weighing: Weighing | None = None
    masking: Masking = Masking.NONE
    mask: Node | None = None
    of_rows: list[Node] = field(default_factory=list)
    """Factors of the rows of q: (heads, rows, 1)."""
    of_keys: list[Node] = field(default_factory=list)
    """Factors of the rows of k: (heads, keys, 1)."""
    made: list[Node] = field(default_factory=list)


def program_of(
    around: Surroundings, steps: Sequence[ScoreStep], frame: Frame, dtype: DType
) -> Program | None:
    """The steps as one program; None where attention does something else."""
    program = Program(dtype=dtype)
    if not all(_take(around, program, step, frame) for step in steps):
        return None
    return program if program.weighing is not None else None


def _take(around: Surroundings, program: Program, step: ScoreStep, frame: Frame) -> bool:
    """Whether one more step could be taken into the program."""
    if not around.may_move(step.node):
        return False
    match step.do:
        case Do.SOFTMAX | Do.RELU:
            is_first = program.weighing is None
            program.weighing = Weighing.RELU if step.do is Do.RELU else Weighing.SOFTMAX
            return is_first
        case Do.SCALE | Do.DIVIDE:
            return _scale(around, program, step, frame)
    # Shares are not masked.
    if program.weighing is not None or step.value is None:
        return False
    is_sum = step.do in (Do.ADD, Do.SUBTRACT)
    is_inverted = step.do in (Do.DROP, Do.DROP_FAR, Do.SUBTRACT)
    value = _inverted(step.value) if is_inverted else step.value
    if value.dtype is not (DType.F32 if is_sum else DType.BOOL):
        return False
    if _follows_places(around, program, step, value, frame):
        return True
    if program.dtype is not DType.F32:
        narrow = _narrow(value, program.dtype)
        if narrow is None or step.do in (Do.KEEP_FAR, Do.DROP_FAR):
            return False
        if program.mask is not None and not (is_sum and _may_be_summed(program)):
            return False
        value = narrow
    if isinstance(value, Literal) and program.masking is Masking.ADD:
        _change_mask(around, program, step, "add", value)
        return True
    mask = _laid_out(around, program, step, value, frame.of_scores)
    if mask is None or not _fits(program.mask, mask):
        return False
    if step.do in (Do.KEEP_FAR, Do.DROP_FAR):
        _keep_far(around, program, step, mask)
    else:
        (_add if is_sum else _keep)(around, program, step, mask)
    return True


def _follows_places(
    around: Surroundings, program: Program, step: ScoreStep, value: Expr, frame: Frame
) -> bool:
    """Whether a mask keeps all scores, or those of no key after its row: then it is not read."""
    places = [leaves(run) for run in step.dims[-2:]]
    sides = sides_of(around, step.node, value)
    if sides is None or places != [leaves(frame.rows), leaves(frame.keys)]:
        return False
    lower, upper = (_keeps(it, value.dtype) for it in (sides.lower, sides.upper))
    program.causal |= (lower, upper, sides.most) == (True, False, 0)
    return (lower, upper) == (True, True) or (lower, upper, sides.most) == (True, False, 0)


def _may_be_summed(program: Program) -> bool:
    """Whether one more mask may be added to the mask in the type of the scores.

    The sum of masks m and n is rounded instead of a score s and of s + m + n, of which one at least
    is half as large. In fp16 it may be infinite where neither of these is.
    """
    return program.masking is Masking.ADD and program.dtype is DType.BF16


def _narrow(value: Expr, dtype: DType) -> Expr | None:
    """A mask as it is before scores of 16 bits are computed with in float32; None of others."""
    match value:
        case Call("cast", (Operand() as own,)) if own.dtype is dtype:
            return own
    return value if value.dtype is DType.BOOL else None


def _keeps(value: float, dtype: DType) -> bool | None:
    """Whether a mask's element keeps its score as it is, or drops it; None of another one."""
    if dtype is DType.BOOL:
        return bool(value)
    return True if value == 0 else False if value <= FAR else None


def _inverted(value: Expr) -> Expr:
    if value.dtype is not DType.BOOL:
        return Call("neg", (value,), value.dtype)
    match value:
        case Call("logical_not" | "bitwise_not", (inner,)):
            return inner
    return Call("logical_not", (value,), DType.BOOL)


# --- Factors -------------------------------------------------------------------------------------


def _scale(around: Surroundings, program: Program, step: ScoreStep, frame: Frame) -> bool:
    value = step.value
    assert value is not None
    if step.do is Do.DIVIDE:
        value = _inverse(value)
    if isinstance(value, Literal) and float(value.value) > 0:
        # relu(c x) = c relu(x); what a softmax gives is scaled after it.
        if program.weighing is Weighing.SOFTMAX:
            return False
        number = float(value.value)
        program.scale *= number
        if program.masking is Masking.ADD and program.dtype is not DType.F32:
            return False
        if program.masking is Masking.ADD:
            _change_mask(around, program, step, "mul", value)
        return True
    if program.masking is Masking.ADD or program.weighing is not None:
        return False
    if program.dtype is not DType.F32:
        return False
    for factors, run in ((program.of_rows, frame.rows), (program.of_keys, frame.keys)):
        factor = _laid_out(around, program, step, value, [*frame.heads, run, []])
        if factor is not None and not _is_in_turns(around, factor, frame):
            factors.append(factor)
            return True
    return False


def _inverse(value: Expr) -> Expr:
    if isinstance(value, Literal) and value.value:
        return Literal(1.0 / float(value.value), value.dtype)
    return Call("div", (Literal(1.0, value.dtype), value), value.dtype)


def _is_in_turns(around: Surroundings, factor: Node, frame: Frame) -> bool:
    """Whether a factor has fewer batches: a product would not repeat these."""
    own, whole = factor.tensor.shape[0], [leaf.size for leaf in leaves(frame.heads[0])]
    return own != ONE and not are_equal([own], whole) if frame.heads else False


# --- Masks ---------------------------------------------------------------------------------------


def _fits(before: Node | None, mask: Node) -> bool:
    """Whether masks broadcast to each other: not so those of some of the batches and of all."""
    if before is None:
        return True
    pairs = zip(before.tensor.shape, mask.tensor.shape, strict=True)
    return all(a == b or ONE in (a, b) for a, b in pairs)


def _change_mask(
    around: Surroundings, program: Program, step: ScoreStep, op: str, number: Literal
) -> None:
    mask = program.mask
    assert mask is not None
    expr = Call(op, (Operand(0, mask.tensor.dtype), number), mask.tensor.dtype)
    program.mask = _pointwise(around, program, step, expr, [mask])


def _add(around: Surroundings, program: Program, step: ScoreStep, added: Node) -> None:
    before, dtype = program.mask, added.tensor.dtype
    if before is not None:
        second = Operand(1, dtype)
        if program.masking is Masking.KEEP:
            expr = Call("where", (Operand(0, DType.BOOL), second, _never(dtype)), dtype)
        else:
            expr = Call("add", (Operand(0, dtype), second), dtype)
        added = _pointwise(around, program, step, expr, [before, added])
    program.mask, program.masking = added, Masking.ADD


def _keep(around: Surroundings, program: Program, step: ScoreStep, kept: Node) -> None:
    before, keep = program.mask, Operand(1, DType.BOOL)
    if before is None:
        program.mask, program.masking = kept, Masking.KEEP
        return
    if program.masking is Masking.KEEP:
        expr = Call("logical_and", (Operand(0, DType.BOOL), keep), DType.BOOL)
    else:
        dtype = before.tensor.dtype
        expr = Call("where", (keep, Operand(0, dtype), _never(dtype)), dtype)
    program.mask = _pointwise(around, program, step, expr, [before, kept])


def _keep_far(around: Surroundings, program: Program, step: ScoreStep, kept: Node) -> None:
    # A row that keeps nothing has equal shares: its scores vanish next to what is added.
    dtype, before = DType.F32, program.mask
    keep, far = Operand(0, DType.BOOL), Literal(_ABSORBING, DType.F32)
    if program.masking is Masking.ADD and before is not None:
        expr = Call("where", (keep, Operand(1, dtype), far), dtype)
        program.mask = _pointwise(around, program, step, expr, [kept, before])
        return
    expr = Call("where", (keep, Literal(0.0, dtype), far), dtype)
    _add(around, program, step, _pointwise(around, program, step, expr, [kept]))


_ABSORBING = -(2.0**100)
"""What leaves nothing of a score that it is added to; its products are exact."""


def _never(dtype: DType) -> Literal:
    return Literal(float("-inf"), dtype)


def _pointwise(
    around: Surroundings, program: Program, step: ScoreStep, expr: Expr, inputs: Sequence[Node]
) -> Node:
    node = Node(
        name=around.fresh("mask"),
        kind=Pointwise(expr),
        type=TensorType(expr.dtype, broadcast(*(it.tensor.shape for it in inputs))),
        inputs=tuple(it.name for it in inputs),
        operators=step.node.operators,
        source=step.node.source,
    )
    program.made.append(node)
    return node


# --- Values of steps -----------------------------------------------------------------------------


def _laid_out(
    around: Surroundings, program: Program, step: ScoreStep, value: Expr, dims: Sequence[Parts]
) -> Node | None:
    """A step's value along `dims`; None where it differs along others, or along some of a run."""
    evaluated, own = _evaluated(around, step, value)
    made = () if evaluated.name in step.node.inputs else (evaluated,)
    present = [leaf for run in own for leaf in leaves(run)]
    wanted: list[Parts] = []
    for at, run in enumerate(dims):
        whole = leaves(run)
        there = [leaf for leaf in whole if leaf in present]
        # The inner ones of the batches: each such mask serves several batches, in turns.
        are_batches = (
            at == 0 and len(dims) == _MOST_DIMS and there == whole[len(whole) - len(there) :]
        )
        if there and there != whole and not are_batches:
            return None
        wanted.append(there)
    if len(present) != sum(map(len, wanted)):
        return None
    views = arranged(around, evaluated, own, wanted)
    program.made += (*made, *views)
    return views[-1] if views else evaluated


_MOST_DIMS = 4
"""Dimensions of the scores of a kernel: batch, head, row and key."""


def _evaluated(around: Surroundings, step: ScoreStep, value: Expr) -> tuple[Node, list[Parts]]:
    """A node with a step's value, and its dimensions."""
    inputs = [around.node(name) for name in step.node.inputs]
    if isinstance(value, Operand) and isinstance(inputs[value.index].type, TensorType):
        own = inputs[value.index]
        return own, _along(own.tensor.shape, step.dims)
    used = sorted({it.index for it in walk(value) if isinstance(it, Operand)})
    operands = [inputs[index] for index in used]
    shapes = [it.type.shape for it in operands if isinstance(it.type, TensorType)]
    far = max((-it.dim for it in walk(value) if isinstance(it, Coordinate)), default=0)
    shapes.append(step.node.tensor.shape[step.node.tensor.rank - far :])
    shape = broadcast(*shapes)
    expr = transform(
        value,
        lambda it: Operand(used.index(it.index), it.dtype) if isinstance(it, Operand) else it,
    )
    node = Node(
        name=around.fresh("mask"),
        kind=Pointwise(expr),
        type=TensorType(value.dtype, shape),
        inputs=tuple(it.name for it in operands),
        operators=step.node.operators,
        source=step.node.source,
    )
    return node, _along(shape, step.dims)


def _along(shape: Sequence[Dim], dims: Sequence[Parts]) -> list[Parts]:
    """The parts of a tensor that broadcasts to dimensions."""
    behind = dims[len(dims) - len(shape) :]
    return [[] if _spreads(size, run) else run for size, run in zip(shape, behind, strict=True)]


def _spreads(size: Dim, run: Parts) -> bool:
    """Whether one element serves all along a run; a size that the caller's decide may be 1, too."""
    return size == ONE or size.hint == 1 < math.prod(leaf.size.hint for leaf in leaves(run))
