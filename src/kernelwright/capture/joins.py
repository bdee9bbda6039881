"""Tensors put side by side, around each other and picked apart by index."""

from collections.abc import Sequence
from typing import Any

from kernelwright.capture.making import Maker, NotMadeError, Part, Rule
from kernelwright.capture.scope import cast, test
from kernelwright.ir.calls import Argument, AtenCall, Record, Ref
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Concat, Gather, Pad
from kernelwright.ir.library_calls import call_of_gather
from kernelwright.ir.sizes import ONE, total
from kernelwright.ir.types import Dim, DType, TensorType


def _typed(m: Maker, kind: Concat | Pad | Gather, parts: list[Part], *rest: Argument) -> Part:
    """The node of the whole call, which `rest` are PyTorch's arguments for."""
    result = m.builder.type_of(m.result)
    assert isinstance(result, TensorType)
    refs: tuple[Argument, ...] = tuple(Ref(part.name) for part in parts)
    match kind:
        case Concat(dim):
            origin = AtenCall("aten.cat.default", (Record("list", refs), dim))
        case Pad(value=value):
            origin = AtenCall("aten.constant_pad_nd.default", (*refs, *rest, value))
        case Gather(dim):
            origin = call_of_gather(parts[0].name, dim, parts[1].name)
    return Part(m.node(kind, result, parts, origin=origin), result)


def beside(m: Maker, parts: Sequence[Part], dim: int) -> Part:
    """Tensors of one type, of which a call's value is made, one after the other."""
    first = parts[0]
    size = total([part.shape[dim] for part in parts])
    kind = TensorType(first.dtype, (*first.shape[:dim], size, *first.shape[dim + 1 :]))
    refs: tuple[Argument, ...] = tuple(Ref(part.name) for part in parts)
    origin = AtenCall("aten.cat.default", (Record("list", refs), dim))
    return Part(m.node(Concat(dim), kind, parts, "cat", origin), kind)


def _parts(m: Maker) -> list[Part]:
    """The tensors of a list, in the element type of the result."""
    return [m.converted(m.part(item), m.dtype) for item in m.call.arguments["tensors"]]


def _cat(m: Maker) -> Part:
    """A vector without elements goes with tensors of any shape, and is left out."""
    parts, rank = _parts(m), m.result.dim()
    kept = [part for part in parts if len(part.shape) == rank]
    if len(kept) < len(parts) and any(
        part.shape != (Dim.static(0),) for part in parts if part not in kept
    ):
        raise NotMadeError
    return _typed(m, Concat(m.call.arguments["dim"] % rank), kept)


def _stack(m: Maker) -> Part:
    dim = m.call.arguments["dim"] % m.result.dim()
    return _typed(m, Concat(dim), [m.unsqueeze(part, dim) for part in _parts(m)])


def _hstack(m: Maker) -> Part:
    parts = [part if part.shape else m.reshape(part, (ONE,)) for part in _parts(m)]
    return _typed(m, Concat(0 if m.result.dim() == 1 else 1), parts)


def _vstack(m: Maker) -> Part:
    """Vectors are rows."""
    parts = [m.unsqueeze(part, 0) if len(part.shape) == 1 else part for part in _parts(m)]
    parts = [part if part.shape else m.reshape(part, (ONE, ONE)) for part in parts]
    return _typed(m, Concat(0), parts)


def _column_stack(m: Maker) -> Part:
    """Vectors are columns."""
    parts = [m.unsqueeze(part, 1) if len(part.shape) == 1 else part for part in _parts(m)]
    parts = [part if part.shape else m.reshape(part, (ONE, ONE)) for part in parts]
    return _typed(m, Concat(1), parts)


def _pad(m: Maker) -> Part:
    """Widths come in pairs, those of the last dimension first."""
    value, widths = m.tensor(), m.call.arguments["pad"]
    fill = m.call.arguments.get("value")
    if m.call.arguments.get("mode", "constant") != "constant":
        raise NotMadeError
    if not all(isinstance(width, int) for width in widths):
        raise NotMadeError
    rank = len(value.shape)
    pairs = [(0, 0)] * (rank - len(widths) // 2)
    pairs += reversed(list(zip(widths[::2], widths[1::2], strict=True)))
    if not any(before or after for before, after in pairs):
        return value
    before, after = zip(*pairs, strict=True)
    return _typed(m, Pad(before, after, _constant(m, fill)), [value], Record("list", tuple(widths)))


def _constant(m: Maker, fill: Any) -> float | int | bool:
    """The number around a padded tensor, in its element type."""
    if not isinstance(fill, int | float | None):
        raise NotMadeError
    number = fill or 0
    if m.dtype is DType.BOOL:
        return bool(number)
    return float(number) if m.dtype.is_float else int(number)


# --- By index ----------------------------------------------------------------------------------


def _gathered(m: Maker, source: Part, index: Part, dim: int) -> Part:
    if index.dtype not in (DType.I64, DType.I32) or not source.shape:
        raise NotMadeError
    return _typed(m, Gather(dim), [source, index])


def _embedding(m: Maker) -> Part:
    return _gathered(m, m.tensor("weight"), m.tensor("indices"), 0)


def _index_select(m: Maker) -> Part:
    source, index = m.tensor(), m.tensor("index")
    dim = m.call.arguments["dim"] % max(len(source.shape), 1)
    return _gathered(m, source, m.reshape(index, (ONE,)) if not index.shape else index, dim)


def _index(m: Maker) -> Part:
    """x[:, i]: one tensor of indices, whole dimensions else."""
    indices = m.call.arguments["indices"]
    places = [place for place, index in enumerate(indices) if index is not None]
    if len(places) != 1:
        raise NotMadeError
    return _gathered(m, m.tensor(), m.part(indices[places[0]]), places[0])


def _one_hot(m: Maker) -> Part:
    """A class that the number of classes leaves no place for would be an error."""
    index = m.tensor()
    wide = m.unsqueeze(index, len(index.shape))
    shape = (*index.shape, m.builder.sizes.dim(m.result.shape[-1]))
    place = m.coordinate(shape, len(shape) - 1)

    def each(index: Expr) -> Expr:
        return cast(test("eq", place, cast(index, DType.I64)), DType.I64)

    return m.apply(each, wide, shape=shape)


RULES: dict[str, Rule] = {
    **{name: _cat for name in ("cat", "concat", "concatenate")},
    "stack": _stack,
    "hstack": _hstack,
    **{name: _vstack for name in ("vstack", "row_stack")},
    "column_stack": _column_stack,
    **{name: _pad for name in ("pad", "constant_pad_nd")},
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _index,
    "one_hot": _one_hot,
}
"""By the operator's short name."""
