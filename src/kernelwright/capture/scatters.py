"""Parts of a tensor that are written in place: which part an element is in is asked of its place.

`x[:, 2:5] = 1` and `x[2:] *= y` come from torch.export as a copy of `x` with a slice replaced. The
new elements are computed where they stand: no tensor for the slice, and no copy. Of an argument,
or a buffer, which the call is to change, these places are written and nothing else.
"""

from functools import partial, reduce

from kernelwright.capture.making import Maker, NotMadeError, Part, Rule
from kernelwright.capture.scope import op, test
from kernelwright.capture.views import selected, written_places
from kernelwright.ir.calls import AtenCall, Ref
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand, Size, transform, walk
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise, Select, Slice, View, Write
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType

_ZERO = Dim.static(0)


def _fill(m: Maker) -> Part:
    """One number, which may be a tensor without dimensions, in every place."""
    whole, value = m.tensor(), m.call.arguments["value"]
    if isinstance(value, int | float):
        literal = Literal(float(value) if m.dtype.is_float else value, m.dtype)
        if m.dtype is DType.BOOL:
            literal = Literal(bool(value), m.dtype)
        return Part(m.node(Pointwise(literal), whole.type, []), whole.type)
    return m.apply(lambda number: number, m.part(value), shape=whole.shape, dtype=m.dtype)


def _slice_scatter(m: Maker) -> Part:
    """Places next to each other, of elements that are computed from numbers and from what stood
    there before."""
    whole, new = m.tensor(), m.builder.node(m.tensor("src").name)
    places = written_places(m.builder, m.call)
    if places is None or new.tensor.dtype is not whole.dtype:
        raise NotMadeError
    if new.type == whole.type:
        return Part(new.name, whole.type)
    if _is_the_callers(m, whole):
        return _write(m, whole, Part(new.name, new.tensor), places)
    tests = [test("ge", _place(whole, places.dim), _number(places.start))]
    tests += [test("lt", _place(whole, places.dim), _number(places.stop))]
    needed = places.start != _ZERO, places.stop != whole.shape[places.dim]
    return _written(
        m, whole, new, places, [it for it, is_open in zip(tests, needed, strict=True) if is_open]
    )


def _select_scatter(m: Maker) -> Part:
    """One index of the first dimension, likewise."""
    whole, new = m.tensor(), m.builder.node(m.tensor("src").name)
    place = selected(m.builder, m.call)
    if new.tensor.dtype is not whole.dtype:
        raise NotMadeError
    if whole.shape[place.dim] != ONE and _is_the_callers(m, whole):
        part = m.unsqueeze(Part(new.name, new.tensor), place.dim)
        stop = m.builder.sizes.sum(place.index, ONE)
        return _write(m, whole, part, Slice(place.dim, place.index, stop, 1))
    if place.dim != 0:
        raise NotMadeError
    if whole.shape[0] == ONE:
        return m.unsqueeze(Part(new.name, new.tensor), 0)
    is_there = test("eq", _place(whole, 0), _number(place.index))
    return _written(m, whole, new, place, [is_there])


def _is_the_callers(m: Maker, whole: Part) -> bool:
    """Whether a call changes the whole, an argument or buffer, here and has read nothing of it.

    It may be large, a cache of keys and values, and its places are few: they alone need be written.
    """
    node = m.builder.node(whole.name)
    if whole.name not in m.builder.mutable and not isinstance(node.kind, Write):
        return False
    readers = [it for it in m.builder.nodes if whole.name in it.inputs]
    read = {name for it in m.builder.nodes for name in it.inputs} if readers else set[str]()
    # The slice that is written to is a view that nobody reads.
    return all(isinstance(it.kind, View) and it.name not in read for it in readers)


def _write(m: Maker, whole: Part, part: Part, places: Slice) -> Part:
    kind = Write(places.dim, places.start, places.stop)
    arguments = (Ref(whole.name), Ref(part.name), places.dim, places.start, places.stop)
    origin = AtenCall("aten.slice_scatter.default", arguments)
    name = m.builder.add_call(m.call, kind, (whole.name, part.name), origin)
    return Part(name, whole.type)


def _written(m: Maker, whole: Part, new: Node, places: Slice | Select, tests: list[Expr]) -> Part:
    """The whole, where elements that pass the tests are those of `new`."""
    inputs = [whole.name]
    value = _InPlace(m, whole, places, inputs).value(new)
    if sum(1 for _ in walk(value)) > _LONGEST:
        raise NotMadeError
    old = Operand(0, whole.dtype)
    match value:
        # Places within places: what is outside of the inner ones is as it was.
        case Call("where", (condition, inner, rest), _) if rest == old:
            value, tests = inner, [*tests, condition]
    expr = op("where", reduce(partial(op, "logical_and"), tests), value, old)
    return Part(m.node(Pointwise(expr), whole.type, inputs), whole.type)


class _InPlace:
    """Expressions of new elements, moved to where they stand in a whole, operand 0 of `inputs`."""

    def __init__(self, m: Maker, whole: Part, places: Slice | Select, inputs: list[str]) -> None:
        self._m = m
        self._whole = whole
        self._places = places
        self._at = places.dim - len(whole.shape)
        self._inputs = inputs

    def value(self, node: Node) -> Expr:
        """What computes an element of a node; NotMadeError where that is not in its place."""
        if node.kind == View(self._places) and self._is_whole(node.inputs[0]):
            return Operand(0, self._whole.dtype)
        if self._is_same_along(node):
            if node.name not in self._inputs[1:]:
                self._inputs.append(node.name)
            return Operand(self._inputs.index(node.name, 1), _element(node))
        if not isinstance(node.kind, Pointwise):
            raise NotMadeError
        operands = [self._m.builder.node(name) for name in node.inputs]

        def moved(leaf: Expr) -> Expr:
            match leaf:
                case Operand(index):
                    return self.value(operands[index])
                case Coordinate(dim) if dim == self._at and isinstance(self._places, Slice):
                    start = self._places.start
                    return leaf if start == _ZERO else op("sub", leaf, _number(start))
            return leaf

        return transform(node.kind.expr, moved)

    def _is_whole(self, name: str) -> bool:
        """Whether a value is the whole, or the same view of the same tensor."""
        if name == self._whole.name:
            return True
        node, whole = (self._m.builder.node(it) for it in (name, self._whole.name))
        is_view = isinstance(node.kind, View) and node.kind == whole.kind
        return is_view and node.inputs == whole.inputs

    def _is_same_along(self, node: Node) -> bool:
        """Whether a value does not change along the dimension of the places."""
        if not isinstance(node.type, TensorType):
            return True
        if isinstance(node.kind, Pointwise) and not node.inputs:
            return False  # A number, which the expression has.
        return node.type.rank < -self._at or node.type.shape[self._at] == ONE


def _element(node: Node) -> DType:
    assert isinstance(node.type, TensorType | ScalarType)
    return node.type.dtype


def _place(whole: Part, dim: int) -> Expr:
    return Coordinate(dim - len(whole.shape))


def _number(size: Dim) -> Expr:
    return Literal(size.hint, DType.I64) if size.is_static else Size(size)


_LONGEST = 32
"""Parts of an expression above which new elements have a tensor of their own."""

RULES: dict[str, Rule] = {
    "fill": _fill,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
}
"""By the operator's short name."""
