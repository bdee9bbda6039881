"""Sums of products of two tensors: every matmul, linear and einsum in Einstein notation."""

from collections.abc import Callable
from dataclasses import replace
from string import ascii_letters

import torch

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.convolutions import conv_of, convolution
from kernelwright.capture.equations import contract_all, einsum
from kernelwright.capture.products import plus, product, term_of
from kernelwright.ir.graph import UserCall
from kernelwright.ir.kinds import Contract, Opaque
from kernelwright.ir.types import TensorType

Rule = Callable[[Builder, Call], str | None]


def contraction(builder: Builder, call: Call) -> str | None:
    """The node of a matrix product; None if the call is none, or one of another kind."""
    rule = RULES.get(call.operator)
    result = call.result
    if rule is None or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return None
    first = len(builder.nodes)
    name = rule(builder, call)
    if name is not None:
        _note_the_call(builder, call, first, name)
    return name


def _note_the_call(builder: Builder, call: Call, first: int, result: str) -> None:
    """Tell the contraction among the nodes from `first` on which call it is part of.

    Where there are several, each alone may be faster in PyTorch, and no call stands for it. Nor
    for the one of an equation of three operands: what else it multiplies is ours, and may be
    computed with what comes next.
    """
    contractions = [it for it in builder.nodes[first:] if isinstance(it.kind, Contract)]
    origin = builder.origin_or_none(call.node)
    few = len(call.arguments.get("tensors", ())) <= 2
    if len(contractions) == 1 and few and origin is not None:
        whole = UserCall(result, origin, conv_of(call) or Opaque())
        builder.replace(replace(contractions[0], part_of=whole))


# --- Rules -------------------------------------------------------------------------------------


def _matmul(builder: Builder, call: Call) -> str | None:
    """(..., m, k) by (..., k, n), vectors standing for matrices of one row or column."""
    a, b = call.traced("self"), call.traced("other")
    kind = builder.type_of(call.result)
    if not isinstance(kind, TensorType):
        return None
    batches = max(a.dim() - 2, b.dim() - 2, 0)
    batch, (m, k, n) = ascii_letters[:batches], tuple(ascii_letters[batches : batches + 3])
    row, column = (m if a.dim() > 1 else ""), (n if b.dim() > 1 else "")
    a_batch, b_batch = (batch[batches - max(x.dim() - 2, 0) :] for x in (a, b))
    terms = (
        term_of(builder, call.arguments["self"], a_batch + row + k),
        term_of(builder, call.arguments["other"], b_batch + k + column),
    )
    return product(builder, call, terms, batch + row + column, kind)


def _linear(builder: Builder, call: Call) -> str | None:
    rank = call.traced("input").dim()
    kind = builder.type_of(call.result)
    if rank == 0 or call.traced("weight").dim() != 2 or not isinstance(kind, TensorType):
        return None
    rows, k, n = ascii_letters[: rank - 1], ascii_letters[rank - 1], ascii_letters[rank]
    terms = (
        term_of(builder, call.arguments["input"], rows + k),
        term_of(builder, call.arguments["weight"], n + k),
    )
    total = product(builder, call, terms, rows + n, kind)
    return plus(builder, call, total, call.arguments["bias"], "bias")


def _bilinear(builder: Builder, call: Call) -> str | None:
    rank = call.traced("input1").dim()
    kind = builder.type_of(call.result)
    if not isinstance(kind, TensorType):
        return None
    batch, (i, j, o) = ascii_letters[: rank - 1], tuple(ascii_letters[rank - 1 : rank + 2])
    terms = (
        term_of(builder, call.arguments["input1"], batch + i),
        term_of(builder, call.arguments["input2"], batch + j),
        term_of(builder, call.arguments["weight"], o + i + j),
    )
    total = contract_all(builder, call, terms, batch + o, kind)
    return plus(builder, call, total, call.arguments["bias"], "bias")


def _multi_dot(builder: Builder, call: Call) -> str | None:
    """A row of matrices, the first and the last of which may be vectors."""
    tensors = call.arguments["tensors" if "tensors" in call.arguments else "matrices"]
    kind = builder.type_of(call.result)
    ranks = [tensor.meta["val"].dim() for tensor in tensors]
    if not isinstance(kind, TensorType) or len(tensors) < 2 or set(ranks) - {1, 2}:
        return None
    words = [ascii_letters[at : at + 2] for at in range(len(tensors))]
    words[0] = words[0][-ranks[0] :]
    words[-1] = words[-1][: ranks[-1]]
    out = words[0][: ranks[0] - 1] + words[-1][1:]
    terms = [term_of(builder, *pair) for pair in zip(tensors, words, strict=True)]
    return contract_all(builder, call, terms, out, kind)


def _inner(builder: Builder, call: Call) -> str | None:
    """Sums over the last dimension of both; a number scales the other operand."""
    ranks = [call.traced(name).dim() for name in ("self", "other")]
    first, second = max(ranks[0] - 1, 0), max(ranks[1] - 1, 0)
    letters, k = ascii_letters[: first + second], ascii_letters[first + second]
    if 0 in ranks:
        return None
    words = {"self": letters[:first] + k, "other": letters[first:] + k}
    return _written(builder, call, words, letters)


def _tensordot(builder: Builder, call: Call) -> str | None:
    words: dict[str, list[str]] = {}
    letters = iter(ascii_letters)
    for name in ("self", "other"):
        words[name] = [next(letters) for _ in range(call.traced(name).dim())]
    for mine, other in zip(call.arguments["dims_self"], call.arguments["dims_other"], strict=True):
        words["other"][other] = words["self"][mine]
    both = set(words["self"]) & set(words["other"])
    out = "".join(letter for word in words.values() for letter in word if letter not in both)
    return _written(builder, call, {name: "".join(word) for name, word in words.items()}, out)


def _words(words: dict[str, str], out: str) -> Rule:
    """A product of the arguments of these names, always of these dimensions."""
    return lambda builder, call: _written(builder, call, words, out)


def _written(builder: Builder, call: Call, words: dict[str, str], out: str) -> str | None:
    """The product of two arguments, by name, under the letters of their dimensions."""
    kind = builder.type_of(call.result)
    a, b = (term_of(builder, call.arguments[name], letters) for name, letters in words.items())
    return product(builder, call, (a, b), out, kind) if isinstance(kind, TensorType) else None


def _added(multiply: Rule) -> Rule:
    """addmm and its like: `alpha` times a product added to `beta` times `self`."""

    def rule(builder: Builder, call: Call) -> str | None:
        numbers = (call.arguments["alpha"], call.arguments["beta"])
        if not all(isinstance(number, int | float) for number in numbers):
            return None
        return plus(builder, call, multiply(builder, call), call.arguments["self"], "add")

    return rule


_OUTER = _words({"self": "a", "vec2": "b"}, "ab")

RULES: dict[str, Rule] = {
    **{name: _matmul for name in ("matmul", "linalg_matmul")},
    "mm": _words({"self": "ab", "mat2": "bc"}, "ac"),
    "bmm": _words({"self": "abc", "mat2": "acd"}, "abd"),
    "mv": _words({"self": "ab", "vec": "b"}, "a"),
    "dot": _words({"self": "a", "tensor": "a"}, ""),
    "vdot": _words({"self": "a", "other": "a"}, ""),
    "linear": _linear,
    "bilinear": _bilinear,
    "addmm": _added(_words({"mat1": "ab", "mat2": "bc"}, "ac")),
    "addmv": _added(_words({"mat": "ab", "vec": "b"}, "a")),
    "baddbmm": _added(_words({"batch1": "abc", "batch2": "acd"}, "abd")),
    "addbmm": _added(_words({"batch1": "abc", "batch2": "acd"}, "bd")),
    "addr": _added(_words({"vec1": "a", "vec2": "b"}, "ab")),
    "einsum": einsum,
    "inner": _inner,
    "tensordot": _tensordot,
    **{name: _OUTER for name in ("outer", "ger")},
    **{name: _multi_dot for name in ("linalg_multi_dot", "chain_matmul")},
    **{f"conv{n}d": convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": convolution for n in (1, 2, 3)},
}
"""By the operator's short name."""
