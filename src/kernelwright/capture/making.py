"""What the rules for composite calls are written with: operands, expressions, reductions, views.

A rule takes a `Maker` and returns the `Part` that is the call's value. Floats of 16 bits are
computed with in float32: a rule widens what it reduces, and the last node narrows once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from kernelwright.capture.builder import Builder, Call
from kernelwright.capture.scope import HALVES, cast
from kernelwright.capture.types import dtype_of
from kernelwright.capture.views import add_view
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.expr import Coordinate, Expr, Literal, Operand, Size
from kernelwright.ir.kinds import (
    Expand,
    Flip,
    Kind,
    Permute,
    Pointwise,
    Project,
    Reduce,
    Reduction,
    Reshape,
    Roll,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType, TupleType, ValueType, broadcast


class NotMadeError(Exception):
    """Internal: this call is outside what its rule can say, and is left to PyTorch."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor on the way to a call's value: the node that holds it."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Its sizes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return self.type.dtype


@dataclass(frozen=True, slots=True)
class Rows:
    """An operand, the dimensions that its call reduces, and whether the result keeps them."""

    value: Part
    dims: tuple[int, ...]
    keeps: bool


def accumulated(dtype: DType) -> DType:
    """The element type that totals of this one are made in."""
    return widened(dtype) if dtype.is_float else DType.I64


def widened(dtype: DType) -> DType:
    """The element type that tensors of this one are computed with in."""
    return DType.F32 if dtype in HALVES else dtype


class Views:
    """Adds views of tensors to the nodes of one call."""

    def __init__(self, builder: Builder, call: Call) -> None:
        self.builder = builder
        self.call = call

    def reshape(self, value: Part, shape: tuple[Dim, ...]) -> Part:
        """The elements of `value` in row-major order, in another shape."""
        return value if shape == value.shape else self._view(value, Reshape(), shape)

    def squeeze(self, value: Part, dims: Sequence[int]) -> Part:
        """Without these dimensions, all of size 1."""
        if not dims:
            return value
        shape = tuple(size for at, size in enumerate(value.shape) if at not in dims)
        return self._view(value, Squeeze(tuple(dims)), shape)

    def unsqueeze(self, value: Part, dim: int) -> Part:
        """With a dimension of size 1 before `dim`."""
        shape = (*value.shape[:dim], ONE, *value.shape[dim:])
        return self._view(value, Unsqueeze(dim), shape)

    def permute(self, value: Part, dims: Sequence[int]) -> Part:
        """Dimension i of the result is dimension dims[i]."""
        shape = tuple(value.shape[dim] for dim in dims)
        return self._view(value, Permute(tuple(dims)), shape)

    def flip(self, value: Part, dims: Sequence[int]) -> Part:
        """These dimensions backwards."""
        return self._view(value, Flip(tuple(sorted(dims))), value.shape)

    def roll(self, value: Part, shifts: Sequence[Dim], dims: Sequence[int]) -> Part:
        """Each of these dimensions moved on by its shift, modulo its size."""
        return self._view(value, Roll(tuple(shifts), tuple(dims)), value.shape)

    def slice(self, value: Part, dim: int, start: Dim, size: Dim) -> Part:
        """`size` places from `start` on along a dimension."""
        stop = self.builder.sizes.sum(start, size)
        shape = (*value.shape[:dim], size, *value.shape[dim + 1 :])
        return self._view(value, Slice(dim, start, stop, 1), shape)

    def expand(self, value: Part, shape: tuple[Dim, ...]) -> Part:
        """Broadcast to a shape."""
        return value if shape == value.shape else self._view(value, Expand(), shape)

    def trailing(self, value: Part | None, count: int) -> Part | None:
        """With `count` dimensions of size 1 at the end, ready to broadcast over channels."""
        if value is None or not count:
            return value
        return self.reshape(value, (*value.shape, *[ONE] * count))

    def _view(self, value: Part, index_map: ViewMap, shape: tuple[Dim, ...]) -> Part:
        kind = TensorType(value.dtype, shape)
        return Part(add_view(self.builder, self.call, value.name, index_map, kind), kind)


class Maker(Views):
    """Adds the nodes of one call."""

    def __init__(self, builder: Builder, call: Call, result: torch.Tensor) -> None:
        super().__init__(builder, call)
        self.result = result
        """The (first) traced result."""
        self.dtype = dtype_of(result.dtype)
        """Its element type."""
        self.compute = widened(self.dtype)
        """What float operands of expressions are converted to."""

    # --- Arguments -----------------------------------------------------------------------------

    def tensor(self, name: str = "self") -> Part:
        """A tensor argument."""
        return self.part(self.call.arguments[name])

    def optional(self, name: str) -> Part | None:
        """A tensor argument that may be absent."""
        return None if self.call.arguments.get(name) is None else self.tensor(name)

    def part(self, value: Any) -> Part:
        """A traced tensor; NotMadeError for numbers and for complex tensors."""
        found = self.builder.values.get(value) if isinstance(value, fx.Node) else None
        kind = self.builder.node(found).type if isinstance(found, str) else None
        if not isinstance(found, str) or not isinstance(kind, TensorType) or kind.dtype.is_complex:
            raise NotMadeError
        return Part(found, kind)

    def given(self, name: str) -> list[Part]:
        """A tensor argument that may be absent, as a list of one or none."""
        part = self.optional(name)
        return [] if part is None else [part]

    def literal(self, name: str) -> float:
        """A number known at capture."""
        value = self.call.arguments[name]
        if not isinstance(value, int | float):
            raise NotMadeError
        return value

    def number(self, value: float) -> Literal:
        """A constant of an expression."""
        return Literal(float(value), self.compute)

    def number_of(self, expr: Expr) -> Expr:
        """Any operand as a number in the type of the computation."""
        return cast(expr, self.compute)

    def rows(self, value: Part | None = None, dims: Any = None, *, keeps: Any = None) -> Rows:
        """What the call reduces: `dims` or else argument `dim` of `value` or else of `self`.

        No dimensions mean all of them; a tensor without any is taken as a row of one element.
        """
        value = value or self.tensor()
        chosen = self.call.arguments.get("dim") if dims is None else dims
        keeps = self.call.arguments.get("keepdim", False) if keeps is None else keeps
        if not value.shape:
            return Rows(self.reshape(value, (ONE,)), (0,), keeps=False)
        return Rows(value, counted(chosen, len(value.shape)), bool(keeps))

    # --- Nodes ---------------------------------------------------------------------------------

    def apply(
        self,
        function: Callable[..., Expr],
        *parts: Part,
        name: str | None = None,
        dtype: DType | None = None,
        origin: AtenCall | None = None,
        shape: tuple[Dim, ...] | None = None,
    ) -> Part:
        """An expression for every element of the parts, broadcast; float operands are widened."""
        names = list(dict.fromkeys(part.name for part in parts))
        operands = [Operand(names.index(part.name), part.dtype) for part in parts]
        expr = function(*(self.computed(operand) for operand in operands))
        expr = cast(expr, dtype or expr.dtype)
        kind = TensorType(expr.dtype, broadcast(*(part.shape for part in parts), shape or ()))
        return self._add(Pointwise(expr), kind, names, name or self.call.operator, origin)

    def computed(self, expr: Expr) -> Expr:
        """A float in the type of the computation, where that is one; other values as they are."""
        compute = self.compute if self.compute.is_float else widened(expr.dtype)
        return cast(expr, compute) if expr.dtype.is_float else expr

    def converted(self, value: Part, dtype: DType) -> Part:
        """The numbers of `value` in another element type."""
        if value.dtype is dtype:
            return value
        names = [value.name]
        expr = cast(Operand(0, value.dtype), dtype)
        kind = TensorType(dtype, value.shape)
        return self._add(Pointwise(expr), kind, names, f"{value.name}_{dtype.value}", None)

    def wide(self, value: Part) -> Part:
        """The operand in the type of the computation."""
        return self.converted(value, self.compute)

    def reduce(self, op: Reduction, rows: Rows, name: str | None = None) -> Part:
        """One total of every row, the reduced dimensions kept."""
        dtype = _TOTALS.get(op, rows.value.dtype)
        kind = TensorType(dtype, _reduced(rows))
        return self._add(Reduce(op, rows.dims), kind, [rows.value.name], name or op.value, None)

    def reduce_twice(self, op: Reduction, rows: Rows, names: tuple[str, str]) -> tuple[Part, Part]:
        """Both totals of every row: MOMENTS gives mean and M2, EXP_SUM maximum and sum."""
        kind = TensorType(rows.value.dtype, _reduced(rows))
        both = f"{names[0]}_and_{names[1]}"
        pair = self.node(Reduce(op, rows.dims), TupleType((kind, kind)), [rows.value], both)
        first, second = (self.node(Project(at), kind, [pair], names[at]) for at in (0, 1))
        return Part(first, kind), Part(second, kind)

    def close(self, value: Part, rows: Rows) -> Part:
        """The value of the call, without the reduced dimensions unless it keeps them."""
        return value if rows.keeps else self.squeeze(value, rows.dims)

    def restored(self, value: Part) -> Part:
        """The value of a call that reduces rows but keeps its operand's shape."""
        return value if self.result.dim() == len(value.shape) else self.squeeze(value, (0,))

    def node(
        self,
        kind: Kind,
        result: ValueType,
        inputs: Sequence[Part | str],
        name: str | None = None,
        origin: AtenCall | None = None,
    ) -> str:
        """A node of any kind; its name. `origin` makes it in PyTorch, where one call can."""
        names = [part.name if isinstance(part, Part) else part for part in inputs]
        return self.builder.add(
            kind,
            result,
            names,
            name=name or self.call.operator,
            origin=origin,
            operators=(self.call.operator,),
            source=self.call.source,
        )

    def _add(
        self, kind: Kind, result: TensorType, names: list[str], name: str, origin: AtenCall | None
    ) -> Part:
        return Part(self.node(kind, result, names, name, origin), result)

    # --- Leaves of expressions -----------------------------------------------------------------

    def count(self, rows: Rows) -> Size:
        """How many elements a row has, in the type of the computation."""
        return Size(product([rows.value.shape[dim] for dim in rows.dims]), self.compute)

    def coordinate(self, shape: Sequence[Dim], dim: int) -> Expr:
        """Where an element of a result of this shape stands along dimension `dim`."""
        if shape[dim] == ONE:
            return Literal(0, DType.I64)
        return Coordinate(dim - len(shape))


_TOTALS = {Reduction.ARGMAX: DType.I64, Reduction.ARGMIN: DType.I64}


def _reduced(rows: Rows) -> tuple[Dim, ...]:
    return tuple(ONE if at in rows.dims else size for at, size in enumerate(rows.value.shape))


def counted(dims: Any, rank: int) -> tuple[int, ...]:
    """A dimension argument as places counted from the front, ascending; all where it is empty."""
    match dims:
        case None | []:
            return tuple(range(rank))
        case int():
            return (dims % rank,)
        case _:
            return tuple(sorted({int(dim) % rank for dim in dims}))


Rule = Callable[[Maker], Part]
"""The value of a call."""
ItemRule = Callable[[Maker, frozenset[int]], dict[int, Part]]
"""Those results, by their place, of a call with several that are asked for."""


def make(builder: Builder, call: Call, rule: Rule) -> str | None:
    """The node of a call's value, or None with nothing added where the rule has no word for it."""
    result = call.result
    if not isinstance(result, torch.Tensor) or result.dtype.is_complex:
        return None
    made = _attempt(builder, call, {0: result}, lambda maker: {0: rule(maker)})
    return None if made is None else made[0]


def make_items(builder: Builder, call: Call, rule: ItemRule) -> dict[int, str] | None:
    """The nodes of the results that are asked for, or None with nothing added."""
    used = frozenset(user.args[1] for user in call.node.users if isinstance(user.args[1], int))
    results = dict(enumerate(call.result))
    return _attempt(builder, call, results, lambda maker: rule(maker, used))


def _attempt(
    builder: Builder,
    call: Call,
    results: Mapping[int, torch.Tensor],
    build: Callable[[Maker], dict[int, Part]],
) -> dict[int, str] | None:
    known, updates = len(builder.nodes), len(builder.updates)
    try:
        parts = build(Maker(builder, call, results[0]))
    except NotMadeError:
        builder.forget(known, updates)
        return None
    for place, part in parts.items():
        _spell_as_traced(builder, part.name, results[place], known)
    return {place: part.name for place, part in parts.items()}


def _spell_as_traced(builder: Builder, name: str, traced: torch.Tensor, first: int) -> None:
    """Give a node from `first` on the type that tracing found, which spells sizes its own way."""
    if any(node.name == name for node in builder.nodes[first:]):
        builder.replace(replace(builder.node(name), type=builder.type_of(traced)))
