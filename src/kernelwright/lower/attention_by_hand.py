"""Attention that is written by hand, whatever its letters: a product, steps, a product."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.attention import Attention, Masking, Weighing
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Pointwise
from kernelwright.ir.library_calls import call_of_attention
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.attention_masks import Frame, Program, program_of
from kernelwright.lower.score_steps import Scores, scores_of
from kernelwright.lower.view_chains import Part, Parts, arranged, leaves, parts_of
from kernelwright.rewrite.surroundings import Surroundings

_ELEMENTS = (DType.F32, DType.F16, DType.BF16)
_COLUMNS = range(8, 257)
"""Columns of a head with which products are worth a kernel that has both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operand:
    """An operand of a product, and the parts of its dimensions."""

    node: Node
    dims: list[Parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    """A product of shares and values."""

    shares: _Operand
    values: _Operand
    keys: Parts
    width: Parts
    out: list[Parts]
    """The result's dimensions."""


def attention_by_hand(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    """What stands for the sums that shares of a row weigh; None of another node."""
    if not isinstance(node.kind, Contract) or node.tensor.dtype not in _ELEMENTS:
        return None
    if not around.may_move(node):
        return None
    for side in (0, 1):
        weighed = _weighed(around, node, node.kind, side)
        found = _found(around, node, weighed) if weighed is not None else None
        if found is not None:
            return found
    return None


def _weighed(around: Surroundings, node: Node, kind: Contract, side: int) -> _Weighed | None:
    """The node as a product whose operand number `side` are shares of rows."""
    letters = (kind.lhs, kind.rhs)
    of_shares, of_values = letters[side], letters[1 - side]
    summed = [x for x in of_shares if x not in kind.out]
    columns = [x for x in of_values if x in kind.out and x not in of_shares]
    if len(summed) != 1 or len(columns) != 1:
        return None
    shares, values = (around.node(node.inputs[at]) for at in (side, 1 - side))
    # Shares that others read are computed all the same.
    if around.readers(shares.name) != 1 or not around.unseen(shares.name):
        return None
    parts = dict(zip(of_shares, parts_of(shares.tensor.shape), strict=True))
    for letter, own in zip(of_values, parts_of(values.tensor.shape), strict=True):
        parts.setdefault(letter, own)
    return _Weighed(
        shares=_Operand(node=shares, dims=[parts[x] for x in of_shares]),
        values=_Operand(node=values, dims=[parts[x] for x in of_values]),
        keys=parts[summed[0]],
        width=parts[columns[0]],
        out=[parts[x] for x in kind.out],
    )


def _found(around: Surroundings, node: Node, weighed: _Weighed) -> tuple[Node, ...] | None:
    scores = scores_of(around, weighed.shares.node, weighed.shares.dims, weighed.keys)
    operands = _operands(around, scores, weighed) if scores is not None else None
    frame = _frame(operands, weighed) if operands is not None else None
    if scores is None or operands is None or frame is None:
        return None
    program = program_of(around, scores.steps, frame, node.tensor.dtype)
    if program is None or not _is_worth_it(operands, weighed, program):
        return None
    q, k, depth = operands
    made = list(program.made)
    given = [
        _laid(around, made, operand, [*frame.heads, rows, columns])
        for operand, rows, columns in (
            (q, frame.rows, depth), (k, frame.keys, depth),
            (weighed.values, frame.keys, weighed.width),
        )
    ]  # fmt: skip
    for at, factors in enumerate((program.of_rows, program.of_keys)):
        for factor in factors:
            given[at] = _multiplied(around, made, given[at], factor)
    if program.mask is not None:
        given.append(program.mask)
    return (*made, *_attention(around, node, scores, weighed, frame, program, given))


def _attention(
    around: Surroundings,
    node: Node,
    scores: Scores,
    weighed: _Weighed,
    frame: Frame,
    program: Program,
    given: Sequence[Node],
) -> tuple[Node, ...]:
    """The node of attention and views of it, the last of which is the node's result."""
    dims = [*frame.heads, frame.rows, weighed.width]
    assert program.weighing is not None
    kind = Attention(
        scale=program.scale,
        causal=program.causal,
        masking=program.masking,
        empty_is_zero=False,
        weighing=program.weighing,
    )
    steps = (step.node for step in scores.steps)
    attended = replace(
        node,
        name=around.fresh(node.name),
        kind=kind,
        type=TensorType(node.tensor.dtype, tuple(map(_size, dims))),
        inputs=tuple(it.name for it in given),
        origin=_call(kind, given),
        part_of=None,
        operators=tuple(
            dict.fromkeys(name for it in (scores.product, *steps, node) for name in it.operators)
        ),
    )
    views = arranged(around, attended, dims, weighed.out)
    if not views:
        return (replace(attended, name=node.name),)
    last = replace(views[-1], name=node.name, type=node.type, source=node.source)
    return (attended, *views[:-1], last)


def _call(kind: Attention, given: Sequence[Node]) -> AtenCall | None:
    """The call of PyTorch that computes the same: with a mask it gives rows without keys zeros."""
    if kind.weighing is not Weighing.SOFTMAX or kind.masking is not Masking.NONE:
        return None
    heads = {it.tensor.shape[:-2] for it in given}
    if len(heads) > 1:
        return None
    return call_of_attention([it.name for it in given], kind)


def _size(run: Parts) -> Dim:
    return product([leaf.size for leaf in leaves(run)])


# --- Operands ------------------------------------------------------------------------------------

_Pair = tuple[_Operand, _Operand, Parts]
"""q, k, and what a score is a sum over."""


def _operands(around: Surroundings, scores: Scores, weighed: _Weighed) -> _Pair | None:
    """The operands of the first product: keys are rows of the one that has them."""
    kind = scores.product.kind
    assert isinstance(kind, Contract)
    parts = dict(zip(kind.out, scores.dims, strict=True))
    summed = [x for x in kind.lhs if x in kind.rhs and x not in kind.out]
    if len(summed) != 1 or not around.may_move(scores.product):
        return None
    tensors = (scores.product, *map(around.node, scores.product.inputs), weighed.values.node)
    if len({it.tensor.dtype for it in tensors}) > 1:
        return None
    found: list[_Operand] = []
    for letters, name in zip((kind.lhs, kind.rhs), scores.product.inputs, strict=True):
        operand = around.node(name)
        own = zip(letters, parts_of(operand.tensor.shape), strict=True)
        found.append(
            _Operand(node=operand, dims=[parts.setdefault(letter, run) for letter, run in own])
        )
    keys = leaves(weighed.keys)
    has = [all(_has(it, leaf) for leaf in keys) for it in found]
    if has[0] == has[1] or not keys:
        return None
    q, k = found if has[1] else found[::-1]
    return None if any(_has(q, leaf) for leaf in keys) else (q, k, parts[summed[0]])


def _has(operand: _Operand, part: Part) -> bool:
    return any(part in leaves(run) for run in operand.dims)


def _frame(operands: _Pair, weighed: _Weighed) -> Frame | None:
    """Rows, which q alone has, and what comes before them, as batch and head."""
    q, k, _ = operands
    keys = leaves(weighed.keys)
    others = [x for run in weighed.shares.dims for x in leaves(run) if x not in keys]
    own = [x for x in others if not _has(k, x) and not _has(weighed.values, x)]
    # Of several the last: others are heads that share their keys.
    rows = own[-1:]
    heads = [[x] for x in others if x not in rows]
    if rows and not _has(q, rows[0]):
        return None
    while len(heads) > 2:
        # The outer ones as one batch, where each operand has both or neither.
        both = [*heads[0], *heads[1]]
        tensors = (q, k, weighed.values)
        if any(len({_has(it, leaf) for leaf in both}) > 1 for it in tensors):
            return None
        heads[:2] = [both]
    return Frame(heads=tuple(heads), rows=rows, keys=weighed.keys)


def _is_worth_it(operands: _Pair, weighed: _Weighed, program: Program) -> bool:
    columns = {_size(operands[2]).hint, _size(weighed.width).hint}
    if not columns <= set(_COLUMNS):
        return False
    # Two layers with an activation in between have the same keys for all rows: two products.
    of_heads = len(weighed.values.dims) > 2 or len(operands[1].dims) > 2
    return of_heads or program.weighing is not Weighing.RELU


def _laid(around: Surroundings, made: list[Node], operand: _Operand, dims: Sequence[Parts]) -> Node:
    """An operand with these dimensions, as far as it has them."""
    wanted = [[leaf for leaf in leaves(run) if _has(operand, leaf)] for run in dims]
    views = arranged(around, operand.node, operand.dims, wanted)
    made += views
    return views[-1] if views else operand.node


def _multiplied(around: Surroundings, made: list[Node], operand: Node, factor: Node) -> Node:
    dtype = operand.tensor.dtype
    shape = tuple(
        a if b == ONE else b for a, b in zip(operand.tensor.shape, factor.tensor.shape, strict=True)
    )
    node = Node(
        name=around.fresh(operand.name),
        kind=Pointwise(Call("mul", (Operand(0, dtype), Operand(1, dtype)), dtype)),
        type=TensorType(dtype, shape),
        inputs=(operand.name, factor.name),
        source=operand.source,
    )
    made.append(node)
    return node
