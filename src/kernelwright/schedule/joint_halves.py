"""What is made of a product's result in halves of runs of columns, as by rotary embedding.

The steps after the product are views and element-by-element launches. They can be done where the
product is computed if each element reads, in its own row, only the two columns that a half of a run
has at one place. Whether that is so follows from sizes and strides: those of every value as a view
of the product's contiguous result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.ir.expr import Accumulator, Call, Coordinate, Expr, Literal, Operand, transform
from kernelwright.ir.joint import Halves
from kernelwright.ir.kinds import Permute, Reshape, Slice, Squeeze, Unsqueeze, ViewMap
from kernelwright.ir.types import Dim, DType, TensorType

_UNKNOWN = tuple(prime << 20 for prime in (241, 251, 239, 233))
"""Stand in for the sizes that calls have: more than known sizes are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A view of the product's result: sizes, strides, and the place of its first element."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


class Sizes:
    """Numbers for sizes, those known at call time included."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, dims: Sequence[Dim]) -> tuple[int, ...] | None:
        """None where a size is computed of others."""
        found = []
        for dim in dims:
            if dim.is_static:
                found.append(dim.hint)
            elif dim.text.isidentifier() and len(self._numbers) < len(_UNKNOWN):
                number = _UNKNOWN[len(self._numbers)]
                found.append(self._numbers.setdefault(dim.text, number))
            else:
                return None
        return tuple(found)


def contiguous(sizes: tuple[int, ...]) -> Seen:
    """The result itself."""
    strides = tuple(prod(sizes[at + 1 :]) for at in range(len(sizes)))
    return Seen(sizes=sizes, strides=_moving(sizes, strides))


def viewed(seen: Seen, index_map: ViewMap, sizes: tuple[int, ...]) -> Seen | None:
    """A view of these sizes of what was seen; None where it is no view by strides."""
    match index_map:
        case Permute(dims):
            strides = tuple(seen.strides[dim] for dim in dims)
        case Unsqueeze(dim):
            strides = (*seen.strides[:dim], 0, *seen.strides[dim:])
        case Squeeze(dims):
            strides = tuple(it for at, it in enumerate(seen.strides) if at not in dims)
        case Slice(dim=dim, start=start, step=1) if start.is_static:
            offset = seen.offset + start.hint * seen.strides[dim]
            return Seen(sizes=sizes, strides=_moving(sizes, seen.strides), offset=offset)
        case Reshape():
            found = _reshaped(seen, sizes)
            if found is None:
                return None
            strides = found
        case _:
            return None
    return Seen(sizes=sizes, strides=_moving(sizes, strides), offset=seen.offset)


def _moving(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, 0 along dimensions of size 1."""
    return tuple(0 if size == 1 else it for size, it in zip(sizes, strides, strict=True))


def _reshaped(seen: Seen, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of the same elements under other sizes."""
    runs: list[list[int]] = []
    for size, stride in zip(seen.sizes, seen.strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    strides: list[int] = []
    for size in reversed(sizes):
        while runs and runs[-1][0] == 1:
            runs.pop()
        if size == 1:
            strides.append(0)
            continue
        if not runs or runs[-1][0] % size:
            return None
        strides.append(runs[-1][1])
        runs[-1] = [runs[-1][0] // size, runs[-1][1] * size]
    is_whole = all(size == 1 for size, _ in runs)
    return tuple(reversed(strides)) if is_whole else None


def broadcast(seen: Seen, rank: int) -> tuple[int, ...]:
    """Strides in a tensor of so many dimensions that it broadcasts to."""
    return (0,) * (rank - len(seen.strides)) + seen.strides


# --- Halves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A result in halves, and which of both each operand is of."""

    halves: Halves
    picks: Mapping[int, tuple[int, int]]
    """By the operand that is of the product, the accumulator in the first and the second half."""


def halves_of(
    shape: tuple[Dim, ...], product: Seen, read: Mapping[int, Seen], sizes: Sizes
) -> Made | None:
    """How results of this shape lie whose operands see the product so; None: not in halves."""
    numbers = sizes.of(shape)
    if numbers is None:
        return None
    rank = len(shape)
    strides = {at: broadcast(seen, rank) for at, seen in read.items()}
    inner = [dim for dim in range(rank) if any(it[dim] == 1 for it in strides.values())]
    if len(inner) != 1:
        return None
    distance = numbers[inner[0]]
    for half in (dim for dim in range(rank) if numbers[dim] == 2 and shape[dim].is_static):
        picks = {at: _picks(seen.offset, strides[at][half], distance) for at, seen in read.items()}
        found = _laid_out(numbers, half, inner[0], list(strides.values()), product)
        if found is not None and None not in picks.values():
            halves = Halves(
                distance=distance, shape=shape, half=half, inner=inner[0], outer=found[0],
                rows=found[1],
            )  # fmt: skip
            return Made(halves=halves, picks={at: it for at, it in picks.items() if it is not None})
    return _split(shape, numbers, inner[0], read, list(strides.values()), product)


def _split(
    shape: tuple[Dim, ...],
    numbers: tuple[int, ...],
    inner: int,
    read: Mapping[int, Seen],
    strides: Sequence[tuple[int, ...]],
    product: Seen,
) -> Made | None:
    """Halves of the columns that lie next to each other, each element made of its own."""
    distance, odd = divmod(numbers[inner], 2)
    if odd or not shape[inner].is_static or any(seen.offset for seen in read.values()):
        return None
    sizes = (*numbers[:inner], 2, distance, *numbers[inner + 1 :])
    split = [(*it[:inner], distance, 1, *it[inner + 1 :]) for it in strides]
    found = _laid_out(sizes, inner, inner + 1, split, product)
    if found is None:
        return None
    dims = (Dim.static(2), Dim.static(distance))
    halves = Halves(
        distance=distance,
        shape=(*shape[:inner], *dims, *shape[inner + 1 :]),
        half=inner,
        inner=inner + 1,
        outer=found[0],
        rows=found[1],
    )
    return Made(halves=halves, picks=dict.fromkeys(read, (0, 1)))


def _picks(offset: int, stride: int, distance: int) -> tuple[int, int] | None:
    """Which half an operand is of in the first and in the second half of the result."""
    first, second = offset, offset + stride
    if {first, second} <= {0, distance}:
        return first // distance, second // distance
    return None


def _laid_out(
    sizes: tuple[int, ...],
    half: int,
    inner: int,
    strides: Sequence[tuple[int, ...]],
    product: Seen,
) -> tuple[int | None, tuple[int | None, ...]] | None:
    """The dimension of runs, and those of rows; None where an element is made of others."""
    (*rows, columns), distance = product.sizes, sizes[inner]
    common = {tuple(n for dim, n in enumerate(it) if dim != half) for it in strides}
    if len(common) != 1 or columns % (2 * distance):
        return None
    steps = dict(enumerate(strides[0]))
    left = {dim for dim, size in enumerate(sizes) if size != 1 and dim not in (half, inner)}
    if steps[inner] != 1:
        return None

    def take(size: int, stride: int) -> int | None:
        for dim in sorted(left):
            if (sizes[dim], steps[dim]) == (size, stride):
                left.discard(dim)
                return dim
        return None

    runs = columns // (2 * distance)
    outer = take(runs, 2 * distance) if runs > 1 else None
    if runs > 1 and outer is None:
        return None
    found = []
    for size, stride in zip(rows, product.strides, strict=False):
        dim = take(size, stride) if size != 1 else None
        if size != 1 and dim is None:
            return None
        found.append(dim)
    return (outer, tuple(found)) if not left else None


def epilogues_of(
    made: Made, epilogue: Expr, dtype: DType, place: Callable[[int], int]
) -> tuple[Expr, ...] | None:
    """The expressions of both halves; `place` numbers other operands, `dtype` is the product's.

    None where one asks for a place that is not the half's.
    """
    rank, half = len(made.halves.shape), made.halves.half
    coordinates = {it.dim for it in _leaves(epilogue) if isinstance(it, Coordinate)}
    if not coordinates <= {half - rank}:
        return None

    def of(number: int) -> Expr:
        def leaf(it: Expr) -> Expr:
            match it:
                case Operand(index, _) if index in made.picks:
                    sums = Accumulator(DType.F32, made.picks[index][number])
                    return Call("cast", (sums,), dtype)
                case Operand(index, own):
                    return Operand(place(index), own)
                case Coordinate(_, own):
                    return Literal(number, own)
            return it

        return _chosen(transform(epilogue, leaf))

    return of(0), of(1)


def _leaves(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call):
        return tuple(leaf for arg in expr.args for leaf in _leaves(arg))
    return (expr,)


def _chosen(expr: Expr) -> Expr:
    """The expression without choices that are made already."""
    if not isinstance(expr, Call):
        return expr
    match expr.op, expr.args:
        case "where", (Call("eq", (Literal(first), Literal(second))), one, other):
            return _chosen(one if first == second else other)
    return Call(expr.op, tuple(map(_chosen, expr.args)), expr.dtype)


def is_split_of(shape: tuple[Dim, ...], halves: Halves) -> bool:
    """Whether a tensor of this shape is one in halves, or has the half and what follows in one."""
    at, whole = halves.half, halves.shape
    joined = Dim.static(2 * halves.distance)
    merged = (*whole[:at], joined, *whole[at + 2 :])
    return shape == whole or (halves.inner == at + 1 and shape == merged)


def plain(output: TensorType, sizes: Sizes) -> Made | None:
    """The halves of a product's own result."""
    numbers = sizes.of(output.shape)
    if numbers is None or numbers[-1] == 1:
        return None
    seen = contiguous(numbers)
    return halves_of(output.shape, seen, {0: seen}, sizes)
