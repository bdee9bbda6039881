"""Sums of products of two tensors: every matmul, linear and einsum in Einstein notation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

import torch

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.pointwise import HALVES, cast
from kernelwright.capture.views import add_view
from kernelwright.ir.expr import Call as Op
from kernelwright.ir.expr import Literal, Operand
from kernelwright.ir.graph import (
    AtenCall,
    Contract,
    Diagonal,
    Permute,
    Pointwise,
    Record,
    Ref,
    Squeeze,
    Text,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.types import Dim, DType, TensorType

Rule = Callable[[Builder, Call], str | None]


@dataclass(frozen=True, slots=True)
class Term:
    """An operand, with one letter for each of its dimensions."""

    name: str
    letters: str
    type: TensorType

    def size(self, letter: str) -> Dim:
        """The size of the dimension called `letter`."""
        return self.type.shape[self.letters.index(letter)]


def contraction(builder: Builder, call: Call) -> str | None:
    """The node of a matrix product; None if the call is none, or one of another kind."""
    rule = RULES.get(call.operator)
    result = call.result
    if rule is None or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return None
    return rule(builder, call)


def _term(builder: Builder, value: Any, letters: str) -> Term:
    name = builder.tensor(value)
    return Term(name, letters, builder.node(name).tensor)


def _product(
    builder: Builder, call: Call, terms: tuple[Term, Term], out: str, kind: TensorType
) -> str | None:
    """The sum of products in Einstein notation; None where a letter is summed in one operand only.

    Broadcasting is PyTorch's: a dimension of size 1 goes with any size.
    """
    if len({terms[0].type.dtype, terms[1].type.dtype, kind.dtype}) != 1:
        return None
    shared = set(terms[0].letters) & set(terms[1].letters)
    if not set(terms[0].letters) | set(terms[1].letters) <= shared | set(out):
        return None
    gaps = [
        {letter for letter in shared if _is_one(a, letter) and not _is_one(b, letter)}
        for a, b in (terms, terms[::-1])
    ]
    if any(gap - set(out) for gap in gaps):
        return None
    a, b = (_squeeze(builder, call, *pair) for pair in zip(terms, gaps, strict=True))
    if shared <= set(out):
        return _outer_product(builder, call, (a, b), out, kind)
    return builder.add(
        Contract(a.letters, b.letters, out),
        kind,
        (a.name, b.name),
        name=call.operator,
        origin=_origin(call, a, b, out),
        operators=(call.operator,),
        source=call.source,
    )


def _is_one(term: Term, letter: str) -> bool:
    return term.size(letter) == Dim.static(1)


def _origin(call: Call, a: Term, b: Term, out: str) -> AtenCall:
    """The product in PyTorch: as a plain matrix product where it is one."""
    operands = (Ref(a.name), Ref(b.name))
    if call.operator == "linear":
        return AtenCall("aten.linear.default", operands)
    if a.letters[-1:] == b.letters[-2:-1] and out == a.letters[:-1] + b.letters[-1:]:
        return AtenCall("aten.matmul.default", operands)
    equation = f"{a.letters},{b.letters}->{out}"
    return AtenCall("aten.einsum.default", (Text(equation), Record("list", operands)))


def _squeeze(builder: Builder, call: Call, term: Term, letters: set[str]) -> Term:
    """The operand without dimensions of size 1 that are only there to be broadcast."""
    if not letters:
        return term
    dims = tuple(d for d, letter in enumerate(term.letters) if letter in letters)
    return _viewed(builder, call, term, Squeeze(dims), _drop(term.letters, dims))


def _drop(items: str, dims: Sequence[int]) -> str:
    return "".join(item for d, item in enumerate(items) if d not in dims)


def _viewed(builder: Builder, call: Call, term: Term, index_map: ViewMap, letters: str) -> Term:
    """The operand under a view that leaves it the dimensions `letters`; "_" is a new one."""
    sizes = [Dim.static(1) if letter == "_" else term.size(letter) for letter in letters]
    kind = TensorType(term.type.dtype, tuple(sizes))
    return Term(add_view(builder, call, term.name, index_map, kind), letters, kind)


def _outer_product(
    builder: Builder, call: Call, terms: tuple[Term, Term], out: str, kind: TensorType
) -> str:
    """A product in which nothing is summed: pointwise, once the operands are lined up."""
    a, b = (_line_up(builder, call, term, out) for term in terms)
    compute = DType.F32 if kind.dtype in HALVES else kind.dtype
    factors = [cast(Operand(index, kind.dtype), compute) for index in (0, 1)]
    product = cast(Op("mul", tuple(factors), compute), kind.dtype)
    names = (a.name, b.name)
    return builder.add(
        Pointwise(product),
        kind,
        names,
        name=call.operator,
        origin=AtenCall("aten.mul.Tensor", (Ref(a.name), Ref(b.name))),
        operators=(call.operator,),
        source=call.source,
    )


def _line_up(builder: Builder, call: Call, term: Term, out: str) -> Term:
    """The operand with its dimensions in the order of `out`, ready to broadcast."""
    order = sorted(range(len(term.letters)), key=lambda d: out.index(term.letters[d]))
    if order != sorted(order):
        letters = "".join(term.letters[d] for d in order)
        term = _viewed(builder, call, term, Permute(tuple(order)), letters)
    if term.letters:
        for place in range(out.index(term.letters[0]), len(out)):
            dim = place - out.index(term.letters[0])
            if term.letters[dim : dim + 1] != out[place]:
                letters = f"{term.letters[:dim]}_{term.letters[dim:]}"
                term = _viewed(builder, call, term, Unsqueeze(dim), letters)
    return term


def _diagonals(builder: Builder, call: Call, term: Term) -> Term:
    """The operand with each letter once: a letter that comes twice means the diagonal."""
    while twice := [letter for letter in term.letters if term.letters.count(letter) > 1]:
        letter = twice[0]
        if term.letters.count(letter) > 2:
            return term
        order = sorted(range(len(term.letters)), key=lambda d: term.letters[d] == letter)
        if order != sorted(order):
            kind = TensorType(term.type.dtype, tuple(term.type.shape[d] for d in order))
            name = add_view(builder, call, term.name, Permute(tuple(order)), kind)
            term = Term(name, "".join(term.letters[d] for d in order), kind)
        term = _viewed(builder, call, term, Diagonal(), term.letters[:-1])
    return term


def _plus(builder: Builder, call: Call, product: str | None, bias: Any, name: str) -> str | None:
    """`alpha` times the product plus `beta` times the bias, as addmm and its like have it."""
    if product is None or bias is None:
        return product
    alpha, beta = call.arguments.get("alpha", 1), call.arguments.get("beta", 1)
    if alpha != 1:
        product = _pointwise(builder, call, "mul", product, alpha, "alpha")
    addend = builder.tensor(bias)
    if beta != 1:
        addend = _pointwise(builder, call, "mul", addend, beta, "beta")
    return _pointwise(builder, call, "add", product, addend, name)


def _pointwise(
    builder: Builder, call: Call, operation: str, left: str, right: str | float, name: str
) -> str:
    """A node of one addition or multiplication."""
    kind = builder.node(left).tensor
    compute = DType.F32 if kind.dtype in HALVES else kind.dtype
    inputs = (left, right) if isinstance(right, str) else (left,)
    operands = [cast(Operand(place, kind.dtype), compute) for place in range(len(inputs))]
    if not isinstance(right, str):
        operands.append(Literal(float(right), compute))
    other = Ref(right) if isinstance(right, str) else right
    return builder.add(
        Pointwise(cast(Op(operation, tuple(operands), compute), kind.dtype)),
        kind,
        inputs,
        name=name,
        origin=AtenCall(f"aten.{operation}.Tensor", (Ref(left), other)),
        operators=(call.operator,),
        source=call.source,
    )


# --- Rules -------------------------------------------------------------------------------------


def _matmul(builder: Builder, call: Call, left: str = "self", right: str = "other") -> str | None:
    """(..., m, k) by (..., k, n), vectors standing for matrices of one row or column."""
    a, b = call.traced(left), call.traced(right)
    kind = builder.type_of(call.result)
    if not isinstance(kind, TensorType):
        return None
    batches = max(a.dim() - 2, b.dim() - 2, 0)
    batch, (m, k, n) = ascii_letters[:batches], tuple(ascii_letters[batches : batches + 3])
    row, column = (m if a.dim() > 1 else ""), (n if b.dim() > 1 else "")
    a_batch, b_batch = (batch[batches - max(x.dim() - 2, 0) :] for x in (a, b))
    terms = (
        _term(builder, call.arguments[left], a_batch + row + k),
        _term(builder, call.arguments[right], b_batch + k + column),
    )
    return _product(builder, call, terms, batch + row + column, kind)


def _linear(builder: Builder, call: Call) -> str | None:
    rank = call.traced("input").dim()
    kind = builder.type_of(call.result)
    if rank == 0 or call.traced("weight").dim() != 2 or not isinstance(kind, TensorType):
        return None
    rows, k, n = ascii_letters[: rank - 1], ascii_letters[rank - 1], ascii_letters[rank]
    terms = (
        _term(builder, call.arguments["input"], rows + k),
        _term(builder, call.arguments["weight"], n + k),
    )
    product = _product(builder, call, terms, rows + n, kind)
    return _plus(builder, call, product, call.arguments["bias"], "bias")


def _added(left: str, right: str) -> Rule:
    """addmm, addmv and baddbmm: a matrix product added to `self`."""

    def rule(builder: Builder, call: Call) -> str | None:
        numbers = (call.arguments["alpha"], call.arguments["beta"])
        if not all(isinstance(number, int | float) for number in numbers):
            return None
        product = _matmul(builder, call, left, right)
        return _plus(builder, call, product, call.arguments["self"], "add")

    return rule


def _einsum(builder: Builder, call: Call) -> str | None:
    """Equations of one or two operands without an ellipsis."""
    tensors = call.arguments["tensors"]
    kind = builder.type_of(call.result)
    parsed = _parse(call.arguments["equation"])
    if parsed is None or len(parsed[0]) != len(tensors) or not isinstance(kind, TensorType):
        return None
    inputs, out = parsed
    terms = [
        _diagonals(builder, call, _term(builder, tensor, letters))
        for tensor, letters in zip(tensors, inputs, strict=True)
    ]
    if any(len(set(term.letters)) != len(term.letters) for term in terms):
        return None
    match terms:
        case [term] if set(term.letters) == set(out):
            return _line_up(builder, call, term, out).name
        case [a, b]:
            return _product(builder, call, (a, b), out, kind)
    return None


def _parse(equation: str) -> tuple[list[str], str] | None:
    """Letters of the operands and of the result; None for an equation with an ellipsis."""
    left, arrow, out = "".join(equation.split()).partition("->")
    if "." in equation:
        return None
    if not arrow:
        out = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    return left.split(","), out


def _outer(right: str) -> Rule:
    def rule(builder: Builder, call: Call) -> str | None:
        kind = builder.type_of(call.result)
        terms = (
            _term(builder, call.arguments["self"], "a"),
            _term(builder, call.arguments[right], "b"),
        )
        return _product(builder, call, terms, "ab", kind) if isinstance(kind, TensorType) else None

    return rule


RULES: dict[str, Rule] = {
    "matmul": _matmul,
    "mm": lambda builder, call: _matmul(builder, call, "self", "mat2"),
    "bmm": lambda builder, call: _matmul(builder, call, "self", "mat2"),
    "mv": lambda builder, call: _matmul(builder, call, "self", "vec"),
    "dot": lambda builder, call: _matmul(builder, call, "self", "tensor"),
    "linear": _linear,
    "addmm": _added("mat1", "mat2"),
    "addmv": _added("mat", "vec"),
    "baddbmm": _added("batch1", "batch2"),
    "einsum": _einsum,
    "outer": _outer("vec2"),
    "ger": _outer("vec2"),
}
