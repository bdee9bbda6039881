"""Products of two tensors and their sums as nodes, in Einstein notation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.scope import HALVES, cast
from kernelwright.capture.views import add_view
from kernelwright.ir.calls import AtenCall, Record, Ref, Text
from kernelwright.ir.expr import Call as Op
from kernelwright.ir.expr import Literal, Operand
from kernelwright.ir.kinds import (
    Contract,
    Diagonal,
    Permute,
    Pointwise,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.types import Dim, DType, TensorType


@dataclass(frozen=True, slots=True)
class Term:
    """An operand, with one letter for each of its dimensions."""

    name: str
    letters: str
    type: TensorType

    def size(self, letter: str) -> Dim:
        """The size of the dimension called `letter`."""
        return self.type.shape[self.letters.index(letter)]


def term_of(builder: Builder, value: Any, letters: str) -> Term:
    """The operand that a traced tensor became."""
    name = builder.tensor(value)
    return Term(name, letters, builder.node(name).tensor)


def product(
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
        {letter for letter in shared if is_one(a, letter) and not is_one(b, letter)}
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


def is_one(term: Term, letter: str) -> bool:
    """True if the dimension has the one index 0 at every call."""
    return term.size(letter) == Dim.static(1)


def _origin(call: Call, a: Term, b: Term, out: str) -> AtenCall:
    """The product in PyTorch: as a plain matrix or dot product where it is one."""
    operands = (Ref(a.name), Ref(b.name))
    if call.operator == "linear":
        return AtenCall("aten.linear.default", operands)
    # torch.matmul lines the dimensions before a matrix up from the right.
    is_matmul = a.letters[-1:] == b.letters[-2:-1] and a.letters[:-2].endswith(b.letters[:-2])
    if is_matmul and out == a.letters[:-1] + b.letters[-1:]:
        return AtenCall("aten.matmul.default", operands)
    if a.letters == b.letters and len(a.letters) == 1:
        return AtenCall("aten.dot.default", operands)
    equation = f"{a.letters},{b.letters}->{out}"
    return AtenCall("aten.einsum.default", (Text(equation), Record("list", operands)))


def _squeeze(builder: Builder, call: Call, term: Term, letters: set[str]) -> Term:
    """The operand without dimensions of size 1 that are only there to be broadcast."""
    if not letters:
        return term
    dims = tuple(d for d, letter in enumerate(term.letters) if letter in letters)
    return viewed(builder, call, term, Squeeze(dims), _drop(term.letters, dims))


def _drop(items: str, dims: Sequence[int]) -> str:
    return "".join(item for d, item in enumerate(items) if d not in dims)


def viewed(builder: Builder, call: Call, term: Term, index_map: ViewMap, letters: str) -> Term:
    """The operand under a view that leaves it the dimensions `letters`; "_" is a new one."""
    sizes = [Dim.static(1) if letter == "_" else term.size(letter) for letter in letters]
    kind = TensorType(term.type.dtype, tuple(sizes))
    return Term(add_view(builder, call, term.name, index_map, kind), letters, kind)


def _outer_product(
    builder: Builder, call: Call, terms: tuple[Term, Term], out: str, kind: TensorType
) -> str:
    """A product in which nothing is summed: pointwise, once the operands are lined up."""
    a, b = (line_up(builder, call, term, out) for term in terms)
    compute = DType.F32 if kind.dtype in HALVES else kind.dtype
    factors = [cast(Operand(index, kind.dtype), compute) for index in (0, 1)]
    names = (a.name, b.name)
    return builder.add(
        Pointwise(cast(Op("mul", tuple(factors), compute), kind.dtype)),
        kind,
        names,
        name=call.operator,
        origin=AtenCall("aten.mul.Tensor", (Ref(a.name), Ref(b.name))),
        operators=(call.operator,),
        source=call.source,
    )


def line_up(builder: Builder, call: Call, term: Term, out: str) -> Term:
    """The operand with its dimensions in the order of `out`, ready to broadcast."""
    order = sorted(range(len(term.letters)), key=lambda d: out.index(term.letters[d]))
    if order != sorted(order):
        letters = "".join(term.letters[d] for d in order)
        term = viewed(builder, call, term, Permute(tuple(order)), letters)
    if term.letters:
        for place in range(out.index(term.letters[0]), len(out)):
            dim = place - out.index(term.letters[0])
            if term.letters[dim : dim + 1] != out[place]:
                letters = f"{term.letters[:dim]}_{term.letters[dim:]}"
                term = viewed(builder, call, term, Unsqueeze(dim), letters)
    return term


def diagonals(builder: Builder, call: Call, term: Term) -> Term:
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
        term = viewed(builder, call, term, Diagonal(), term.letters[:-1])
    return term


def plus(builder: Builder, call: Call, total: str | None, bias: Any, name: str) -> str | None:
    """`alpha` times the product plus `beta` times the bias, as addmm and its like have it.

    With a `beta` of 0 the bias is not read, whatever it holds.
    """
    if total is None or bias is None:
        return total
    alpha, beta = call.arguments.get("alpha", 1), call.arguments.get("beta", 1)
    if alpha != 1:
        total = _pointwise(builder, call, "mul", total, alpha, "alpha")
    if beta == 0:
        return total
    addend = bias if isinstance(bias, str) else builder.tensor(bias)
    if beta != 1:
        addend = _pointwise(builder, call, "mul", addend, beta, "beta")
    return _pointwise(builder, call, "add", total, addend, name)


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
