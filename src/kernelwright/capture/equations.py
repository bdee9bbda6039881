"""Einstein equations of any number of operands, as sums of products of two."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from string import ascii_letters
from typing import TypeVar

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.products import Term, diagonals, line_up, product, term_of
from kernelwright.ir.calls import AtenCall, Record, Ref
from kernelwright.ir.kinds import Opaque
from kernelwright.ir.types import TensorType

Item = TypeVar("Item")

_MOST_TERMS = 5
"""Operands whose orders are all tried: 180 of them for five."""

_WRITING = 50
"""Work of a number that is written and read again, in multiplications: memory is the slow part."""


def einsum(builder: Builder, call: Call) -> str | None:
    """The node of an equation; None for one that only sums, or whose letters stretch a size of 1.

    A letter that comes twice in an operand means the diagonal.
    """
    tensors = call.arguments["tensors"]
    ranks = [tensor.meta["val"].dim() for tensor in tensors]
    inputs, out = parse(call.arguments["equation"], ranks)
    kind = builder.type_of(call.result)
    if not isinstance(kind, TensorType) or any(
        word.count(letter) > 2 for word in inputs for letter in word
    ):
        return None
    terms = [
        diagonals(builder, call, term_of(builder, tensor, letters))
        for tensor, letters in zip(tensors, inputs, strict=True)
    ]
    return contract_all(builder, call, terms, out, kind)


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters of the operands, of these ranks, and of the result.

    An ellipsis stands for letters of its own, aligned at its last one.
    """
    left, arrow, out = "".join(equation.split()).partition("->")
    words = left.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    counts = [
        rank - len(word.replace("...", "")) if "..." in word else 0
        for word, rank in zip(words, ranks, strict=True)
    ]
    hidden = "".join(free[: max(counts)])
    if not arrow:
        named = sorted(set(left) - set(",."))
        out = "..." + "".join(letter for letter in named if left.count(letter) == 1)
    expanded = [
        word.replace("...", hidden[len(hidden) - count :])
        for word, count in zip(words, counts, strict=True)
    ]
    return expanded, out.replace("...", hidden)


def contract_all(
    builder: Builder, call: Call, terms: Sequence[Term], out: str, kind: TensorType
) -> str | None:
    """The node of the sum of products of the terms, of type `kind` with dimensions `out`.

    Multiplies two at a time in the order of least work at the captured sizes. None as for
    `einsum`, and for more than five terms.
    """
    if len(terms) == 1:
        (term,) = terms
        same = sorted(term.letters) == sorted(out)
        return line_up(builder, call, term, out).name if same else None
    if len({term.type.dtype for term in terms}) != 1 or len(terms) > _MOST_TERMS:
        return None
    if len(terms) > 2 and not _sizes_agree(terms):
        return None
    words = [term.letters for term in terms]
    alone = [_kept(words, (at,), out) for at in range(len(words))]
    left = [_sum(builder, call, *pair) for pair in zip(terms, alone, strict=True)]
    sizes = {letter: term.size(letter).hint for term in terms for letter in term.letters}
    _, order = _cheapest([term.letters for term in left], out, sizes)
    for pair in order[:-1]:
        made = _multiply(builder, call, left, pair, out)
        if made is None:
            return None
        left = _replaced(left, pair, made)
    return product(builder, call, (left[0], left[1]), out, kind)


def _multiply(
    builder: Builder, call: Call, terms: Sequence[Term], pair: tuple[int, int], out: str
) -> Term | None:
    """The product of two of several terms, its dimensions in the order of a matrix product's."""
    a, b = (terms[at] for at in pair)
    letters = _kept([term.letters for term in terms], pair, out)
    shape = tuple((a if letter in a.letters else b).size(letter) for letter in letters)
    kind = TensorType(a.type.dtype, shape)
    name = product(builder, call, (a, b), letters, kind)
    return None if name is None else Term(name, letters, kind)


def _sizes_agree(terms: Sequence[Term]) -> bool:
    sizes = [(letter, term.size(letter)) for term in terms for letter in term.letters]
    return len(set(sizes)) == len({letter for letter, _ in sizes})


def _without(items: Sequence[Item], places: tuple[int, ...]) -> list[Item]:
    return [item for at, item in enumerate(items) if at not in places]


def _replaced(items: Sequence[Item], pair: tuple[int, int], new: Item) -> list[Item]:
    """The list with `new` in place of the first of two items, and without the second."""
    return _without([*items[: pair[0]], new, *items[pair[0] + 1 :]], pair[1:])


def _kept(words: Sequence[str], places: tuple[int, ...], out: str) -> str:
    """The letters of some words that the result or another word has: batch, left, right."""
    wanted = set(out).union(*_without(words, places))
    letters = "".join(dict.fromkeys("".join(words[at] for at in places)))
    kept = [letter for letter in letters if letter in wanted]
    shared = [letter for letter in kept if all(letter in words[at] for at in places)]
    return "".join(dict.fromkeys(shared + kept))


def _cheapest(
    words: Sequence[str], out: str, sizes: Mapping[str, int]
) -> tuple[int, list[tuple[int, int]]]:
    """The cost of the best order in multiplications, and that order: which two are next.

    Their product takes the place of the first. Where nothing is summed it is pointwise: after all
    sums it is computed with what is around it, but before one it has to be written.
    """
    if len(words) == 1:
        return 0, []
    found: list[tuple[int, list[tuple[int, int]]]] = []
    for pair in combinations(range(len(words)), 2):
        letters, kept = set(words[pair[0]] + words[pair[1]]), _kept(words, pair, out)
        rest = _replaced(words, pair, kept)
        sums_later = len(letters) == len(kept) and not set().union(*rest) <= set(out)
        cost = _WRITING if sums_later else 1
        for letter in letters:
            cost *= sizes[letter]
        more, order = _cheapest(rest, out, sizes)
        found.append((cost + more, [pair, *order]))
    return min(found)


def _sum(builder: Builder, call: Call, term: Term, kept: str) -> Term:
    """The operand summed over the letters that nothing else has, by PyTorch."""
    dims = [d for d, letter in enumerate(term.letters) if letter not in kept]
    if not dims:
        return term
    letters = "".join(letter for letter in term.letters if letter in kept)
    kind = TensorType(term.type.dtype, tuple(term.size(letter) for letter in letters))
    arguments = (Ref(term.name), Record("list", tuple(dims)))
    name = builder.add(
        Opaque(),
        kind,
        (term.name,),
        name="sum",
        origin=AtenCall("aten.sum.dim_IntList", arguments),
        operators=(call.operator,),
        source=call.source,
    )
    return Term(name, letters, kind)
