"""Row kernels made by hand, with what PyTorch makes of the same inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand, Size, Total
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Kernel
from kernelwright.ir.row_configs import RowConfig
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType, ValueType

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row program over a shape whose sizes are all known at call time only."""

    name: str
    folds: tuple[tuple[Reduction, Expr, tuple[DType, ...]], ...]
    results: tuple[tuple[Expr, Extent, DType], ...]
    operands: tuple[str, ...]
    """How each tensor varies: "all", "row" (size 1 elsewhere), "kept", "i64 kept", "last", or
    "inner" (all but the first and the last)."""
    reference: Callable[..., tuple[torch.Tensor, ...]]
    """Of the dims that are reduced, the inputs, and `scale`."""
    dtype: DType = DType.F32

    def kernel(
        self, rank: int, dims: tuple[int, ...], config: RowConfig, sizes: Sequence[int] = ()
    ) -> Kernel:
        """The kernel; static where sizes are given."""
        shape = tuple(Dim.static(sizes[at]) if sizes else Dim(f"s{at}", 12) for at in range(rank))
        folds = tuple(Fold(op=op, value=value, totals=totals) for op, value, totals in self.folds)
        results = tuple(RowResult(value=value, extent=extent) for value, extent, _ in self.results)
        program = RowProgram(shape=shape, dims=dims, folds=folds, results=results)
        inputs: list[ValueType] = [
            TensorType(
                DType.I64 if kind.startswith("i64") else self.dtype,
                operand_shape(kind, shape, dims, Dim.static(1)),
            )
            for kind in self.operands
        ]
        outputs = tuple(
            TensorType(dtype, program.result_shape(extent)) for _, extent, dtype in self.results
        )
        return Kernel(
            name=self.name,
            family="rows",
            anchor=program,
            epilogue=None,
            inputs=(*inputs, ScalarType(DType.F64)),
            outputs=outputs,
            operators=(self.name,),
            config=config,
        )


def operand_shape(kind: str, shape: Sequence[T], dims: Sequence[int], one: T) -> tuple[T, ...]:
    """The shape of an operand that varies in this way."""
    match kind.split()[-1]:
        case "row":
            return tuple(size if at in dims else one for at, size in enumerate(shape))
        case "kept":
            return tuple(one if at in dims else size for at, size in enumerate(shape))
        case "last":
            return tuple(shape[-1:])
        case "inner":
            return (one, *shape[1:-1], one)
    return tuple(shape)


def call(op: str, *args: Expr) -> Call:
    return Call(op, args, args[-1].dtype)


def cast(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


F32, I64 = DType.F32, DType.I64
SUM, MOMENTS, EXP_SUM = Reduction.SUM, Reduction.MOMENTS, Reduction.EXP_SUM
ELEMENT, ROW = Extent.ELEMENT, Extent.ROW
T0, T1 = Total(0, F32), Total(1, F32)


def number(value: float) -> Literal:
    return Literal(value, F32)


def softmax(dtype: DType = F32) -> Case:
    a = cast(Operand(0, dtype), F32)
    value = call("div", call("exp", call("sub", a, T0)), T1)
    return Case(
        name="softmax",
        folds=((EXP_SUM, a, (F32, F32)),),
        results=((cast(value, dtype), ELEMENT, dtype),),
        operands=("all",),
        reference=_softmax,
        dtype=dtype,
    )


def _softmax(dims: tuple[int, ...], scale: float, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if x.numel() == 0:
        return (x,)
    powers = (x - x.amax(dims, keepdim=True)).exp()
    return (powers / powers.sum(dims, keepdim=True),)


def two_level_softmax() -> Case:
    """The maximum and the sum as folds of their own."""
    a = Operand(0, F32)
    shifted = call("exp", call("sub", call("mul", a, Operand(1, F32)), T0))
    return Case(
        name="scaled_softmax",
        folds=(
            (Reduction.MAXIMUM, call("mul", a, Operand(1, F32)), (F32,)),
            (SUM, shifted, (F32,)),
        ),
        results=(
            (call("div", shifted, T1), ELEMENT, F32),
            (call("add", T0, call("log", T1)), ROW, F32),
        ),
        operands=("all",),
        reference=lambda dims, scale, x: (
            (x * scale - (x * scale).logsumexp(dims, keepdim=True)).exp(),
            (x * scale).logsumexp(dims, keepdim=True),
        ),
    )


def layer_norm(dtype: DType = F32) -> Case:
    a, weight, shift = (cast(Operand(i, dtype), F32) for i in (0, 1, 2))
    count = Size(Dim("count", 12), F32)
    inverse = call("rsqrt", call("add", call("div", T1, count), number(1e-5)))
    value = call("add", call("mul", call("mul", call("sub", a, T0), inverse), weight), shift)
    return Case(
        name="layer_norm",
        folds=((MOMENTS, a, (F32, F32)),),
        results=((cast(value, dtype), ELEMENT, dtype), (T0, ROW, F32)),
        operands=("all", "row", "kept"),
        reference=lambda dims, scale, x, w, b: (
            (x - x.mean(dims, keepdim=True))
            / (x.var(dims, keepdim=True, correction=0) + 1e-5).sqrt()
            * w
            + b,
            x.mean(dims, keepdim=True),
        ),
        dtype=dtype,
    )


def chained(dtype: DType = F32) -> Case:
    """Results of every level: a sum that a fold takes, its norm, which the next fold takes, and
    what is left of that."""
    a, b, weight = (cast(Operand(i, dtype), F32) for i in (0, 1, 2))
    count = Size(Dim("count", 12), F32)
    inverse = call("rsqrt", call("add", call("div", T1, count), number(1e-5)))
    added = cast(call("add", a, b), dtype)
    step = cast(added, F32)
    scaled = call("mul", call("mul", call("sub", step, T0), inverse), weight)
    norm = cast(call("mul", scaled, number(0.25)), dtype)
    rest = cast(call("sub", cast(norm, F32), Total(2, F32)), dtype)
    return Case(
        name="chained",
        folds=((MOMENTS, step, (F32, F32)), (Reduction.MAXIMUM, cast(norm, F32), (F32,))),
        results=(
            (rest, ELEMENT, dtype),
            (added, ELEMENT, dtype),
            (norm, ELEMENT, dtype),
            (T0, ROW, F32),
        ),
        operands=("all", "all", "row"),
        reference=lambda dims, scale, x, y, w: _chained(dtype, dims, x, y, w),
        dtype=dtype,
    )


def _chained(
    dtype: DType, dims: tuple[int, ...], x: torch.Tensor, y: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    def stored(value: torch.Tensor) -> torch.Tensor:
        return value.bfloat16().double() if dtype is DType.BF16 else value

    added = stored(x + y)
    mean = added.mean(dims, keepdim=True)
    norm = (added - mean) / (added.var(dims, keepdim=True, correction=0) + 1e-5).sqrt() * w
    norm = stored(norm / 4)
    return norm - norm.amax(dims, keepdim=True), added, norm, mean


def group_norm(dtype: DType = F32) -> Case:
    """The same with weights as channels of images have them, which groups of channels share."""
    return replace(layer_norm(dtype), name="group_norm", operands=("all", "inner", "kept"))


def normed_groups(dtype: DType = F32) -> Case:
    """A group norm that has no mean for a result, which an infinity makes NaN."""
    case = group_norm(dtype)
    return replace(
        case,
        name="normed_groups",
        results=case.results[:1],
        reference=lambda *arguments: case.reference(*arguments)[:1],
    )


def hinge() -> Case:
    """A fold whose second input is the same for each run of a row."""
    margin = call("sub", number(1.0), call("mul", Operand(0, F32), Operand(1, F32)))
    return Case(
        name="hinge",
        folds=((SUM, call("maximum", margin, number(0.0)), (F32,)),),
        results=((T0, ROW, F32),),
        operands=("all", "last"),
        reference=lambda dims, scale, x, y: ((1 - x * y).clamp(min=0).sum(dims, keepdim=True),),
    )


def extremes(dtype: DType = F32) -> Case:
    a = Operand(0, dtype)
    positive = call("gt", a, Literal(0.5, dtype))
    positive = Call("gt", positive.args, DType.BOOL)
    folds = (
        (Reduction.MAXIMUM, a, (dtype,)),
        (Reduction.MINIMUM, a, (dtype,)),
        (Reduction.ARGMAX, a, (I64,)),
        (Reduction.ARGMIN, a, (I64,)),
        (Reduction.ANY, positive, (DType.BOOL,)),
        (Reduction.ALL, positive, (DType.BOOL,)),
    )
    totals = [(Total(at, types[0]), ROW, types[0]) for at, (_, _, types) in enumerate(folds)]
    return Case(
        name="extremes",
        folds=folds,
        results=tuple(totals),
        operands=("all",),
        reference=_extremes,
        dtype=dtype,
    )


def _extremes(dims: tuple[int, ...], scale: float, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    kept = [at for at in range(x.dim()) if at not in dims]
    flat = x.permute(*kept, *dims).flatten(len(kept))
    shape = operand_shape("kept", x.shape, dims, 1)
    found = (
        flat.amax(-1),
        flat.amin(-1),
        flat.argmax(-1),
        flat.argmin(-1),
        (flat > 0.5).any(-1),
        (flat > 0.5).all(-1),
    )
    return tuple(each.reshape(shape) for each in found)


def sums(dtype: DType = F32) -> Case:
    a = Operand(0, dtype)
    return Case(
        name="sums",
        folds=((SUM, a, (dtype,)), (Reduction.PRODUCT, a, (dtype,))),
        results=((Total(0, dtype), ROW, dtype), (Total(1, dtype), ROW, dtype)),
        operands=("all",),
        reference=lambda dims, scale, x: (
            x.sum(dims, keepdim=True),
            _product(dims, x),
        ),
        dtype=dtype,
    )


def total(dtype: DType = F32) -> Case:
    """One fold of what an input holds."""
    both = sums(dtype)
    return replace(
        both,
        name="total",
        folds=both.folds[:1],
        results=both.results[:1],
        reference=lambda dims, scale, x: (x.sum(dims, keepdim=True),),
    )


def _product(dims: tuple[int, ...], x: torch.Tensor) -> torch.Tensor:
    for dim in dims:
        x = x.prod(dim, keepdim=True)
    return x


def cross_entropy() -> Case:
    """The loss of each row, whose target is a place along the last dimension."""
    a = Operand(0, F32)
    hit = Call("eq", (Coordinate(-1), Operand(1, I64)), DType.BOOL)
    return Case(
        name="cross_entropy",
        folds=(
            (EXP_SUM, a, (F32, F32)),
            (SUM, Call("where", (hit, a, number(0.0)), F32), (F32,)),
        ),
        results=((call("sub", call("add", T0, call("log", T1)), Total(2, F32)), ROW, F32),),
        operands=("all", "i64 kept"),
        reference=lambda dims, scale, x, target: (
            x.logsumexp(dims, keepdim=True)
            - torch.where(torch.arange(x.shape[-1]) == target, x, 0).sum(dims, keepdim=True),
        ),
    )


CASES: dict[str, Callable[..., Case]] = {
    "softmax": softmax,
    "two_level_softmax": two_level_softmax,
    "layer_norm": layer_norm,
    "chained": chained,
    "extremes": extremes,
    "sums": sums,
    "total": total,
    "group_norm": group_norm,
    "normed_groups": normed_groups,
    "hinge": hinge,
    "cross_entropy": cross_entropy,
}
