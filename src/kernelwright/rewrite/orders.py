"""Contractions as matrix products: one summed letter, rows next to columns, columns of one operand.

An operand is taken under fewer letters by a Reshape, which copies only where its elements do not
lie in that order; the result is given its own order by views.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Permute, Reshape, View, ViewMap
from kernelwright.ir.sizes import product
from kernelwright.ir.types import Dim, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand, with one letter for each of its dimensions."""

    node: Node
    letters: str
    views: tuple[Node, ...] = ()
    """Nodes made on the way here, in order."""


def _terms(around: Surroundings, node: Node, kind: Contract) -> tuple[_Term, _Term]:
    lhs, rhs = (around.node(name) for name in node.inputs)
    return _Term(lhs, kind.lhs), _Term(rhs, kind.rhs)


def _sizes(*terms: _Term) -> dict[str, Dim]:
    return {
        letter: size
        for term in terms
        for letter, size in zip(term.letters, term.node.tensor.shape, strict=True)
    }


def _own(kind: Contract, letters: str) -> str:
    """Those of the letters that only one operand has."""
    return "".join(x for x in letters if (x in kind.lhs) != (x in kind.rhs))


def _viewed(
    around: Surroundings, term: _Term, index_map: ViewMap, shape: tuple[Dim, ...], letters: str
) -> _Term:
    view = Node(
        name=around.fresh(term.node.name),
        kind=View(index_map),
        type=TensorType(term.node.tensor.dtype, shape),
        inputs=(term.node.name,),
        source=term.node.source,
    )
    return _Term(view, letters, (*term.views, view))


def _ordered(around: Surroundings, term: _Term, letters: str) -> _Term:
    """The operand with its dimensions in the order of `letters`."""
    if letters == term.letters:
        return term
    dims = tuple(term.letters.index(letter) for letter in letters)
    shape = tuple(term.node.tensor.shape[d] for d in dims)
    return _viewed(around, term, Permute(dims), shape, letters)


def _joined(around: Surroundings, term: _Term, run: str) -> _Term:
    """The operand with the letters of `run` as one dimension, called by the first of them."""
    if run not in term.letters:
        # Columns of the sum stay last, where they were: a copy then writes whole rows.
        rest = "".join(letter for letter in term.letters if letter not in run)
        term = _ordered(around, term, rest + run)
    at = term.letters.index(run)
    shape = term.node.tensor.shape
    merged = (*shape[:at], product(shape[at : at + len(run)]), *shape[at + len(run) :])
    return _viewed(around, term, Reshape(), merged, term.letters.replace(run, run[0]))


def _contraction(node: Node, terms: tuple[_Term, _Term], out: str, name: str) -> _Term:
    """The contraction of two operands, with the nodes that it needs."""
    sizes = _sizes(*terms)
    contract = replace(
        node,
        name=name,
        kind=Contract(terms[0].letters, terms[1].letters, out),
        type=TensorType(node.tensor.dtype, tuple(sizes[letter] for letter in out)),
        inputs=tuple(term.node.name for term in terms),
        origin=None,
    )
    return _Term(contract, out, (*terms[0].views, *terms[1].views, contract))


# --- Rules -------------------------------------------------------------------------------------


def _sum_over_one(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Tuples of summed indices, in one order in both operands, are one summed index.
    if not isinstance(node.kind, Contract):
        return None
    kind = node.kind
    summed = "".join(letter for letter in kind.lhs if letter not in kind.out)
    # A sum over everything is no matrix product.
    if len(summed) < 2 or not _own(kind, kind.out):
        return None
    terms = _terms(around, node, kind)
    # The order in which fewer elements would have to move.
    orders = (summed, "".join(letter for letter in kind.rhs if letter in summed))
    order = min(orders, key=lambda order: sum(_moved(term, order) for term in terms))
    lhs, rhs = (_joined(around, term, order) for term in terms)
    return _contraction(node, (lhs, rhs), kind.out, node.name).views


def _moved(term: _Term, order: str) -> int:
    return 0 if order in term.letters else term.node.tensor.numel_hint


def _columns_of_one_letter(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Columns that lie next to each other in both the operand and the result are one dimension.
    if not isinstance(node.kind, Contract):
        return None
    kind = node.kind
    terms = _terms(around, node, kind)
    for side, term in enumerate(terms):
        run = _last_run(kind.out, _own(kind, term.letters))
        # Without rows the operand is read once: that is no time to copy it.
        has_rows = _own(kind, terms[1 - side].letters) != ""
        if has_rows and len(run) > 1 and run in term.letters:
            pair = (_joined(around, term, run), terms[1 - side])
            out = kind.out.replace(run, run[0])
            ordered = pair if side == 0 else pair[::-1]
            total = _contraction(node, ordered, out, around.fresh(node.name))
            return _finish(node, total, Reshape())
    return None


def _last_run(out: str, letters: str) -> str:
    """The letters at the end of `out` that are all among `letters`."""
    return out[len(out.rstrip(letters)) :] if letters else ""


def _natural_order(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # The same sums in another order of their indices, and a view that puts them back.
    if not isinstance(node.kind, Contract) or _is_matrix_product(node.kind):
        return None
    kind = node.kind
    terms = _terms(around, node, kind)
    out = _natural(kind, _sizes(*terms))
    if out == kind.out:
        return None
    total = _contraction(node, terms, out, around.fresh(node.name))
    return _finish(node, total, Permute(tuple(out.index(letter) for letter in kind.out)))


def _natural(kind: Contract, sizes: Mapping[str, Dim]) -> str:
    """The result's letters: batch, then rows, then columns, as they lie in the operands.

    Of the rows and columns of an operand the largest run that lies together is meant; its other
    letters count as batch.
    """
    last_is_left = kind.out[-1] in kind.lhs and kind.out[-1] not in kind.rhs
    words = (
        (kind.rhs, kind.lhs) if last_is_left or not _own(kind, kind.rhs) else (kind.lhs, kind.rhs)
    )
    runs = [max(_runs(kind, word), key=lambda run: _count(run, sizes)) for word in words]
    batch = [letter for letter in kind.out if letter in kind.lhs and letter in kind.rhs]
    # Rows that count as batch come after columns that do: launchers take them for rows again.
    for word in reversed(words):
        batch += [x for x in _own(kind, word) if x not in runs[0] + runs[1]]
    return "".join(batch) + runs[0] + runs[1]


def _runs(kind: Contract, letters: str) -> list[str]:
    """The letters that only this operand has, as far as they lie together."""
    own = _own(kind, letters)
    marked = "".join(letter if letter in own else " " for letter in letters)
    return marked.split() or [""]


def _count(letters: str, sizes: Mapping[str, Dim]) -> int:
    return prod(sizes[letter].hint for letter in letters)


def _finish(node: Node, total: _Term, index_map: ViewMap) -> tuple[Node, ...]:
    """The nodes of `total` and, under the name of `node`, a view of it of the right shape."""
    view = replace(node, kind=View(index_map), inputs=(total.node.name,), origin=None, operators=())
    return (*total.views, view)


def _is_matrix_product(kind: Contract) -> bool:
    """True for a result whose last dimension is one operand's columns; rows may stand anywhere."""
    # A sum over everything, for each of a batch: nothing to arrange.
    return not _own(kind, kind.out) or _own(kind, kind.out[-1]) != ""


def _written_as_read(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Einstein notation names dimensions; the kernel writes them in any order if columns stay last.
    match _order_read(around, node):
        case Contract(out=out), order if order[-1] == out[-1]:
            return _in_order(around, node, order)
    return None


def _written_turned(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # A kernel takes the factors in either order: what were rows are then columns. What the caller
    # gets keeps the strides that PyTorch gives it.
    match _order_read(around, node):
        case Contract() as kind, order if _own(kind, order[-1]) and around.unseen(node.name):
            return _in_order(around, node, order)
    return None


def _order_read(around: Surroundings, node: Node) -> tuple[Contract, str] | None:
    """A product, and the letters of its result as a view, its only reader, has them."""
    source = around.node(node.inputs[0]) if isinstance(node.kind, View) else None
    match node.kind, source:
        case View(Permute(dims)), Node(kind=Contract(lhs, rhs, out) as kind):
            # Rows or columns of several dimensions are one only while they stand together.
            plain = len(_own(kind, lhs)) == len(_own(kind, rhs)) == 1
            alone = around.unseen(source.name) and around.readers(source.name) == 1
            if plain and alone and _is_matrix_product(kind) and around.may_move(source):
                return kind, "".join(out[d] for d in dims)
    return None


def _in_order(around: Surroundings, node: Node, order: str) -> tuple[Node, ...]:
    source = around.node(node.inputs[0])
    assert isinstance(source.kind, Contract)
    terms = _terms(around, source, source.kind)
    return _contraction(source, terms, order, around.fresh(source.name)).views


ORDER_RULES = (
    Rule(name="several summed dimensions taken as one", match=_sum_over_one),
    Rule(name="columns of several dimensions taken as one", match=_columns_of_one_letter),
    Rule(name="product in the order of its rows and columns", match=_natural_order),
    Rule(name="product written in the order it is read in", match=_written_as_read),
)

TURNING_RULES = (Rule(name="product written with its factors swapped", match=_written_turned),)
"""After views of products have moved below what follows, where others may undo them."""
