"""Elements repeated, shuffled and gated: calls that several views make."""

from collections.abc import Sequence
from typing import Any

from torch import fx

from kernelwright.capture.joins import beside
from kernelwright.capture.making import ItemRule, Maker, NotMadeError, Part, Rule
from kernelwright.capture.scope import op
from kernelwright.ir.expr import Expr
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType


def _sizes(m: Maker) -> tuple[Dim, ...]:
    """The shape of the result."""
    return tuple(m.builder.sizes.dim(size) for size in m.result.shape)


_WHOLE, _EACH = 0, 1
"""What is copied: a whole dimension again and again, or each element on the spot."""


def _copies(m: Maker, value: Part, counts: Sequence[int], what: int) -> Part:
    """Each dimension so many times."""
    if not all(isinstance(count, int) for count in counts):
        raise NotMadeError
    shape, dims = list(value.shape), [at for at, count in enumerate(counts) if count != 1]
    for at in reversed(dims):
        place = at + what
        value = m.unsqueeze(value, place)
        shape[place:place] = [ONE]
        shape[place] = Dim.static(counts[at])
    if not dims:
        return value
    return m.reshape(m.expand(value, tuple(shape)), _sizes(m))


def _repeat(m: Maker) -> Part:
    """repeat and tile; new dimensions come first."""
    value = m.tensor()
    counts = list(m.call.arguments["repeats" if m.call.operator == "repeat" else "dims"])
    while len(value.shape) < len(counts):
        value = m.unsqueeze(value, 0)
    counts = [1] * (len(value.shape) - len(counts)) + counts
    return _copies(m, value, counts, _WHOLE)


def _repeat_interleave(m: Maker) -> Part:
    """Every element so many times in a row; of the flattened tensor if no dimension is given."""
    value, count, dim = m.tensor(), m.call.arguments["repeats"], m.call.arguments["dim"]
    if dim is None:
        value, dim = m.reshape(value, (product(value.shape),)), 0
    rank = len(value.shape)
    counts: list[Any] = [count if at == dim % rank else 1 for at in range(rank)]
    return _copies(m, value, counts, _EACH)


def _roll(m: Maker) -> Part:
    """By a shift for each dimension; without dimensions the flattened tensor by one shift."""
    value, shape = m.tensor(), m.tensor().shape
    given, dims = _listed(m.call.arguments["shifts"]), _listed(m.call.arguments.get("dims", ()))
    if not dims:
        value, dims = m.reshape(value, (product(shape),)), [0]
    shifts: list[Dim] = []
    moved: list[int] = []
    for shift, dim in zip(map(_traced, given), dims, strict=True):
        size = value.shape[dim]
        by = m.builder.sizes.dim(shift)
        if by.is_static and size.is_static and size.hint:
            by = Dim.static(by.hint % size.hint)
        if by != Dim.static(0):
            shifts.append(by)
            moved.append(dim % len(value.shape))
    if shifts:
        value = m.roll(value, shifts, moved)
    elif m.builder.is_mutable(value.name):
        raise NotMadeError
    return m.reshape(value, shape)


def _listed(value: Any) -> list[Any]:
    """The numbers of an argument that may be one by itself."""
    return [value] if isinstance(value, int | fx.Node) else list(value)


def _traced(value: Any) -> Any:
    """The traced value of a number."""
    return value.meta["val"] if isinstance(value, fx.Node) else value


def _upsample_nearest(m: Maker) -> Part:
    """By whole factors, each element as often as the factor says."""
    value = m.tensor("input")
    factors = m.call.arguments.get("scale_factors")
    if factors is None or not all(float(factor).is_integer() for factor in factors):
        raise NotMadeError
    counts = [1, 1, *(int(factor) for factor in factors)]
    return _copies(m, value, counts, _EACH)


def _pixel_shuffle(m: Maker) -> Part:
    """(..., C r r, H, W) to (..., C, H r, W r)."""
    value, factor = m.tensor(), Dim.static(m.call.arguments["upscale_factor"])
    *batch, channels, _, _ = _sizes(m)
    rest = value.shape[-2:]
    split = m.reshape(value, (*batch, channels, factor, factor, *rest))
    first = len(batch)
    order = [*range(first), *(first + at for at in (0, 3, 1, 4, 2))]
    return m.reshape(m.permute(split, order), _sizes(m))


def _pixel_unshuffle(m: Maker) -> Part:
    value, factor = m.tensor(), Dim.static(m.call.arguments["downscale_factor"])
    *batch, channels, _, _ = value.shape
    high, wide = _sizes(m)[-2:]
    split = m.reshape(value, (*batch, channels, high, factor, wide, factor))
    first = len(batch)
    order = [*range(first), *(first + at for at in (0, 2, 4, 1, 3))]
    return m.reshape(m.permute(split, order), _sizes(m))


def _channel_shuffle(m: Maker) -> Part:
    value, groups = m.tensor(), m.call.arguments["groups"]
    batch, _, *space = value.shape
    each = m.builder.sizes.dim(m.call.traced("self").shape[1] // groups)
    split = m.reshape(value, (batch, Dim.static(groups), each, *space))
    order = [0, 2, 1, *range(3, len(split.shape))]
    return m.reshape(m.permute(split, order), value.shape)


def _rot90(m: Maker) -> Part:
    """Quarter turns from the first of two dimensions toward the second."""
    value, turns = m.tensor(), m.call.arguments["k"] % 4
    dims = [dim % len(value.shape) for dim in m.call.arguments["dims"]]
    if turns in (0, 2):
        return m.flip(value, dims) if turns else value
    order = list(range(len(value.shape)))
    order[dims[0]], order[dims[1]] = dims[1], dims[0]
    return m.permute(m.flip(value, [dims[1] if turns == 1 else dims[0]]), order)


def _meshgrid(m: Maker, used: frozenset[int]) -> dict[int, Part]:
    """Vector i along dimension i; with indexing "xy" the first two change places."""
    shape, places = _sizes(m), list(range(m.result.dim()))
    if m.call.arguments.get("indexing") == "xy":
        places[:2] = reversed(places[:2])
    made = {}
    for at in sorted(used):
        value = m.part(m.call.arguments["tensors"][at])
        own = [ONE] * len(shape)
        own[places[at]] = product(value.shape)
        made[at] = m.expand(m.reshape(value, tuple(own)), shape)
    return made


def _diff(m: Maker) -> Part:
    """Each element less the one before it, of a tensor with what is put before and after it."""
    value, given = m.tensor(), m.call.arguments
    rank = len(value.shape)
    parts = [*m.given("prepend"), value, *m.given("append")]
    alike = all(part.dtype is m.dtype and len(part.shape) == rank for part in parts)
    if given["n"] != 1 or not alike:
        raise NotMadeError
    dim = given["dim"] % rank
    whole = value if len(parts) == 1 else beside(m, parts, dim)
    size = _sizes(m)[dim]
    ends = [m.slice(whole, dim, Dim.static(start), size) for start in (1, 0)]
    operation = "bitwise_xor" if m.dtype is DType.BOOL else "sub"
    return m.apply(lambda a, b: op(operation, a, b), *ends, dtype=m.dtype)


def _glu(m: Maker) -> Part:
    """The first half of a dimension times the sigmoid of the second."""
    value = m.tensor()
    dim = m.call.arguments["dim"] % len(value.shape)
    half = _sizes(m)[dim]
    halves = [m.slice(value, dim, start, half) for start in (Dim.static(0), half)]
    return m.apply(lambda x, gate: op("mul", x, op("sigmoid", gate)), *halves, dtype=m.dtype)


def _prelu(m: Maker) -> Part:
    """One slope for all, or one for each channel."""
    value, slope = m.tensor(), m.tensor("weight")
    one = not slope.shape or slope.shape == (ONE,) or len(value.shape) < 2
    slope = m.reshape(slope, ()) if one else m.trailing(slope, len(value.shape) - 2) or slope

    def each(x: Expr, slope: Expr) -> Expr:
        return op("leaky_relu", x, slope)

    return m.apply(each, value, slope, dtype=m.dtype)


RULES: dict[str, Rule] = {
    **{name: _repeat for name in ("repeat", "tile")},
    "roll": _roll,
    "repeat_interleave": _repeat_interleave,
    **{f"upsample_nearest{n}d": _upsample_nearest for n in (1, 2, 3)},
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
    "rot90": _rot90,
    "diff": _diff,
    "glu": _glu,
    "prelu": _prelu,
}
"""By the operator's short name."""

ITEM_RULES: dict[str, ItemRule] = {"meshgrid": _meshgrid}
"""Operators with several results, by their short name."""
