"""Operators that only say which element goes where: ATen names to index maps."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.ir.kinds import (
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    View,
    ViewMap,
)
from kernelwright.ir.library_calls import call_of_view
from kernelwright.ir.types import Dim, TensorType

_LAST = 2**62
"""Ends of slices beyond this mean "to the end": tracing writes 2**63 - 1."""


class Same:
    """The result is the operand itself."""


Rule = Callable[[Builder, Call], ViewMap | Same | None]


def view(builder: Builder, call: Call) -> str | None:
    """The node of a view call: a new one, or the operand's own; None if the call is no view."""
    rule = RULES.get(call.operator)
    if rule is None:
        return None
    operand = call.arguments["src" if call.operator == "copy" else "self"]
    if isinstance(builder.values[operand], Number):
        return None
    return _apply(builder, call, operand, rule(builder, call))


def item_view(builder: Builder, call: Call, index: int, item: fx.Node) -> str | None:
    """The node of item `index` of a call that returns several views; None for other calls."""
    rule = ITEM_RULES.get(call.operator)
    if rule is None:
        return None
    operand, index_map = rule(builder, call, index)
    taken = Call(
        node=item,
        name=call.name,
        operator=call.operator,
        arguments=call.arguments,
        source=call.source,
    )
    return _apply(builder, taken, operand, index_map)


def add_view(builder: Builder, call: Call, name: str, index_map: ViewMap, kind: TensorType) -> str:
    """Append a view of node `name`, on behalf of `call`."""
    return builder.add(
        View(index_map),
        kind,
        (name,),
        name=type(index_map).__name__.lower(),
        origin=call_of_view(index_map, name, kind),
        operators=(call.operator,),
        source=call.source,
    )


def _apply(
    builder: Builder, call: Call, operand: fx.Node, index_map: ViewMap | Same | None
) -> str | None:
    if index_map is None:
        return None
    name = builder.tensor(operand)
    kind = builder.type_of(call.result)
    assert isinstance(kind, TensorType)
    keeps = isinstance(index_map, Reshape | Expand) and kind == builder.node(name).type
    if isinstance(index_map, Same) or keeps:
        return name
    return add_view(builder, call, name, index_map, kind)


# --- Rules -------------------------------------------------------------------------------------


def _rank(call: Call) -> int:
    return int(call.traced("self").dim())


def _dim(call: Call, name: str = "dim", extra: int = 0) -> int:
    """A dimension argument counted from the front."""
    return int(call.arguments[name]) % max(_rank(call) + extra, 1)


def _same(_: Builder, __: Call) -> Same:
    return Same()


def _clone(builder: Builder, call: Call) -> Same | None:
    """A copy is the operand itself, unless that may change while the copy does not."""
    return None if builder.is_mutable(builder.tensor(call.arguments["self"])) else Same()


def _copy(builder: Builder, call: Call) -> Same | None:
    """The source of a copy_, where nothing is converted and nothing broadcast."""
    source = call.arguments["src"]
    same = builder.type_of(call.traced("src")) == builder.type_of(call.result)
    return Same() if same and not builder.is_mutable(builder.tensor(source)) else None


def _same_dtype(_: Builder, call: Call) -> Same | None:
    return Same() if call.result.dtype == call.traced("self").dtype else None


def _reshape(_: Builder, __: Call) -> Reshape:
    return Reshape()


def _expand(_: Builder, __: Call) -> Expand:
    return Expand()


def _permute(_: Builder, call: Call) -> Permute:
    return Permute(tuple(int(dim) % _rank(call) for dim in call.arguments["dims"]))


def _transpose(_: Builder, call: Call) -> Permute | Same:
    """transpose(dim0, dim1), and the swapaxes(axis0, axis1) that means the same."""
    if _rank(call) == 0:
        return Same()
    prefix = "dim" if "dim0" in call.arguments else "axis"
    return _swap(call, _dim(call, f"{prefix}0"), _dim(call, f"{prefix}1"))


def _swap(call: Call, a: int, b: int) -> Permute:
    dims = list(range(_rank(call)))
    dims[a], dims[b] = dims[b], dims[a]
    return Permute(tuple(dims))


def _transpose_last(_: Builder, call: Call) -> Permute | Same:
    rank = _rank(call)
    return _swap(call, rank - 2, rank - 1) if rank >= 2 else Same()


def _reverse_dims(_: Builder, call: Call) -> Permute:
    return Permute(tuple(reversed(range(_rank(call)))))


def _movedim(_: Builder, call: Call) -> Permute:
    source, target = (
        [int(dim) % _rank(call) for dim in ([dims] if isinstance(dims, int) else dims)]
        for dims in (call.arguments["source"], call.arguments["destination"])
    )
    order = [dim for dim in range(_rank(call)) if dim not in source]
    for place, dim in sorted(zip(target, source, strict=True)):
        order.insert(place, dim)
    return Permute(tuple(order))


def _unsqueeze(_: Builder, call: Call) -> Unsqueeze:
    return Unsqueeze(_dim(call, extra=1))


def _squeeze(_: Builder, call: Call) -> Squeeze | Same:
    """The dimensions asked for, or all, that are of size 1 at every call."""
    shape = call.traced("self").shape
    wanted = call.arguments.get("dim", range(len(shape)))
    dims = [wanted] if isinstance(wanted, int) else wanted
    gone = sorted(d % len(shape) for d in dims if shape and _is_one(shape[d]))
    return Squeeze(tuple(gone)) if gone else Same()


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1


def _slice(builder: Builder, call: Call) -> Slice | Same | None:
    dim = _dim(call)
    size, length = call.traced("self").shape[dim], call.result.shape[dim]
    step = call.arguments["step"]
    start = _from_front(_value(call, "start", 0), size)
    if not isinstance(step, int) or (isinstance(start, int) and start > 0 and _is_zero(length)):
        return None
    stop = start + length if step == 1 else _from_front(_value(call, "end", _LAST), size)
    begin, end = builder.sizes.dim(start), builder.sizes.dim(stop)
    if begin == Dim.static(0) and end == builder.sizes.dim(size) and step == 1:
        return Same()
    return Slice(dim, begin, end, step)


def written_places(builder: Builder, call: Call) -> Slice | None:
    """Where a call that writes the slice `src` of `self` writes; None for steps and for nothing."""
    dim = _dim(call)
    size, length = call.traced("self").shape[dim], call.traced("src").shape[dim]
    if call.arguments.get("step", 1) != 1 or _is_zero(length):
        return None
    start = _from_front(_value(call, "start", 0), size)
    return Slice(dim, builder.sizes.dim(start), builder.sizes.dim(start + length), 1)


def _narrow(builder: Builder, call: Call) -> Slice:
    dim = _dim(call)
    start = _from_front(call.traced("start"), call.traced("self").shape[dim])
    stop = start + call.result.shape[dim]
    return Slice(dim, builder.sizes.dim(start), builder.sizes.dim(stop), 1)


def _value(call: Call, name: str, default: int) -> Any:
    value = call.traced(name)
    return default if value is None else value


def _is_zero(size: object) -> bool:
    return isinstance(size, int) and size == 0


def _from_front(place: Any, size: Any) -> Any:
    """A bound of a slice as PyTorch reads it, counted from the front."""
    if not isinstance(place, int):
        return place
    if place < 0:
        place = place + size
        return max(place, 0) if isinstance(place, int) else place
    if place >= _LAST:
        return size
    return min(place, size) if isinstance(size, int) else place


def selected(builder: Builder, call: Call) -> Select:
    """The index of a dimension that a call names."""
    dim = _dim(call)
    index = _from_front(call.traced("index"), call.traced("self").shape[dim])
    return Select(dim, builder.sizes.dim(index))


def _flip(_: Builder, call: Call) -> Flip | Same:
    dims = tuple(sorted(dim % _rank(call) for dim in call.arguments["dims"]))
    return Flip(dims) if dims else Same()


def _flip_of(dim: int) -> Rule:
    return lambda _, __: Flip((dim,))


def _is_main(call: Call, dim1: int, dim2: int, rank: int) -> bool:
    """True for the main diagonal of the last two dimensions of `rank`."""
    dims = {call.arguments.get("dim1", dim1) % rank, call.arguments.get("dim2", dim2) % rank}
    return call.arguments.get("offset", 0) == 0 and dims == {rank - 2, rank - 1}


def _diag_embed(_: Builder, call: Call) -> DiagEmbed | None:
    return DiagEmbed() if _is_main(call, -2, -1, _rank(call) + 1) else None


def _diagonal(builder: Builder, call: Call) -> Diagonal | None:
    shape = call.traced("self").shape
    square = builder.sizes.dim(shape[-1]) == builder.sizes.dim(shape[-2])
    return Diagonal() if square and _is_main(call, 0, 1, _rank(call)) else None


def _diag(builder: Builder, call: Call) -> DiagEmbed | Diagonal | None:
    if call.arguments["diagonal"] != 0:
        return None
    return DiagEmbed() if _rank(call) == 1 else _diagonal(builder, call)


RULES: dict[str, Rule] = {
    **{name: _same for name in ("alias", "detach", "contiguous", "positive")},
    **{name: _same for name in ("lift_fresh", "lift_fresh_copy", "resolve_conj", "resolve_neg")},
    **{name: _same_dtype for name in ("to", "_to_copy", "type_as")},
    **{name: _reshape for name in ("view", "reshape", "_unsafe_view", "flatten", "unflatten")},
    **{name: _reshape for name in ("view_as", "reshape_as", "ravel")},
    **{name: _expand for name in ("expand", "expand_as", "broadcast_to")},
    **{name: _transpose for name in ("transpose", "swapaxes", "swapdims")},
    "clone": _clone,
    "copy": _copy,
    "permute": _permute,
    "t": _transpose_last,
    "mT": _transpose_last,
    "numpy_T": _reverse_dims,
    "movedim": _movedim,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "slice": _slice,
    "narrow": _narrow,
    "select": selected,
    "flip": _flip,
    "fliplr": _flip_of(1),
    "flipud": _flip_of(0),
    "diag": _diag,
    "diag_embed": _diag_embed,
    "diagonal": _diagonal,
}


def _part(builder: Builder, call: Call, index: int) -> tuple[fx.Node, Slice]:
    """A piece of split, split_with_sizes or chunk: after all the pieces before it."""
    dim = _dim(call)
    lengths: Sequence[Any] = [piece.shape[dim] for piece in call.result]
    start = sum(lengths[:index])
    bounds = (builder.sizes.dim(start), builder.sizes.dim(start + lengths[index]))
    return call.arguments["self"], Slice(dim, *bounds, 1)


def _row(_: Builder, call: Call, index: int) -> tuple[fx.Node, Select]:
    return call.arguments["self"], Select(_dim(call), Dim.static(index))


def _broadcast(_: Builder, call: Call, index: int) -> tuple[fx.Node, Expand]:
    return call.arguments["tensors"][index], Expand()


ITEM_RULES: dict[str, Callable[[Builder, Call, int], tuple[fx.Node, ViewMap]]] = {
    **{name: _part for name in ("split", "split_with_sizes", "chunk")},
    **{name: _part for name in ("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk")},
    "unbind": _row,
    "broadcast_tensors": _broadcast,
}
"""Operators that return a list of views, which is only ever taken apart."""
