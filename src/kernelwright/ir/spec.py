"""What a well-formed graph is: a table of rules, checked after every pass."""

from collections.abc import Callable, Iterator

from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.expr import (
    OPERATIONS,
    Accumulator,
    Call,
    Coordinate,
    Operand,
    Total,
    walk,
)
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Constant,
    Contract,
    Conv,
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Gather,
    Input,
    Loop,
    Opaque,
    Pad,
    Parameter,
    Patches,
    Permute,
    Pointwise,
    Pooling,
    Project,
    Reduce,
    Reduction,
    Relayout,
    Reshape,
    Roll,
    Scan,
    Select,
    Slice,
    Squeeze,
    TileMoments,
    TileReduction,
    Unsqueeze,
    View,
    Window,
    Write,
)
from kernelwright.ir.layouts import layout_of
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType, TupleType


class MalformedGraphError(AssertionError):
    """A bug in a pass of ours, never the user's mistake; the message names node and rule."""


def check(graph: Graph) -> Graph:
    """Return `graph` if it is well-formed; MalformedGraphError at the first broken rule."""
    seen: dict[str, Node] = {}
    for node in graph.nodes:
        for problem in _problems(node, seen):
            raise MalformedGraphError(f"{graph.name}: node {node.name}: {problem}\n\n{graph}")
        seen[node.name] = node
    missing = [name for name in graph.results if name not in seen]
    if missing:
        raise MalformedGraphError(f"{graph.name}: returns unknown nodes {missing}\n\n{graph}")
    return graph


def _problems(node: Node, seen: dict[str, Node]) -> Iterator[str]:
    if node.name in seen:
        yield "is defined twice"
    if not node.name.isidentifier():
        yield "has a name that is no Python identifier"
    unknown = [name for name in node.inputs if name not in seen]
    if unknown:
        yield f"reads {unknown}, not defined before it"
        return
    if node.origin is not None and not set(node.origin.refs) <= set(node.inputs):
        yield f"has an origin that reads {node.origin.refs}, but inputs {node.inputs}"
    rule = RULES[type(node.kind)]
    inputs = [seen[name] for name in node.inputs]
    yield from rule(node, inputs)
    layout = node.type.layout if isinstance(node.type, TensorType) else None
    if layout is not None and layout != layout_of(node, inputs):
        yield f"has {layout}, which does not follow from its inputs"


def _leaf(node: Node, inputs: list[Node]) -> Iterator[str]:
    if inputs:
        yield "is a leaf and takes no inputs"


def _pointwise(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Pointwise)
    if not isinstance(node.type, TensorType):
        yield "is pointwise, so its type must be a tensor"
        return
    if kind.expr.dtype != node.type.dtype:
        yield f"has an expression of {kind.expr.dtype} but type {node.type}"
    for part in walk(kind.expr):
        match part:
            case Operand(index, dtype):
                if index >= len(inputs):
                    yield f"uses operand %{index} of {len(inputs)}"
                elif getattr(inputs[index].type, "dtype", None) != dtype:
                    yield f"reads %{index} as {dtype}, but it is {inputs[index].type}"
            case Coordinate(dim):
                if not 1 <= -dim <= node.type.rank:
                    yield f"asks for coordinate {dim} of {node.type}"
                elif node.type.shape[dim] == Dim.static(1):
                    yield f"asks where it stands along a dimension of size 1 of {node.type}"
            case Call(op, args, _):
                if OPERATIONS.get(op) != len(args):
                    yield f"calls {op} with {len(args)} arguments"
    for item in inputs:
        if isinstance(item.type, TensorType) and not _broadcasts(item.type, node.type):
            yield f"cannot broadcast {item.name}: {item.type} to {node.type}"


def _broadcasts(source: TensorType, target: TensorType) -> bool:
    if source.rank > target.rank:
        return False
    pairs = zip(reversed(source.shape), reversed(target.shape), strict=False)
    return all(a.hint in (1, b.hint) for a, b in pairs)


def _contract(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Contract)
    if len(inputs) != 2:
        yield "contracts two inputs"
        return
    if kind.patches is not None and not _are_patches(kind.patches, inputs, node):
        yield f"has no {kind.patches} in {inputs[0].type} for {inputs[1].type}"
        return
    sizes: dict[str, Dim] = {}
    shapes = (*kind.factors(*(it.tensor.shape for it in (*inputs, node))), node.tensor.shape)
    for labels, shape in zip((kind.lhs, kind.rhs, kind.out), shapes, strict=True):
        if len(set(labels)) != len(labels):
            yield f"repeats a letter in {labels}"
        if len(shape) != len(labels):
            yield f"gives {', '.join(map(str, shape))} the letters {labels}"
            return
        for label, dim in zip(labels, shape, strict=True):
            if sizes.setdefault(label, dim).hint != dim.hint:
                yield f"has sizes {sizes[label]} and {dim} for {label}"
    if len({item.tensor.dtype for item in (*inputs, node)}) != 1:
        yield "mixes dtypes"
    everywhere = set(kind.lhs) | set(kind.rhs)
    lonely = {x for x in everywhere if (x in kind.lhs) + (x in kind.rhs) + (x in kind.out) < 2}
    if lonely or not set(kind.out) <= everywhere:
        yield f"has letters in one place only: {kind}"


def _are_patches(kind: Patches, inputs: list[Node], node: Node) -> bool:
    images, weight = (it.tensor for it in inputs)
    if (images.rank, weight.rank, node.tensor.rank) != (4, 2, 4):
        return False
    taps = kind.taps[0] * kind.taps[1]
    same_images = images.shape[0].hint == node.tensor.shape[0].hint
    return same_images and taps * images.shape[3].hint == weight.shape[1].hint


def _view(node: Node, inputs: list[Node]) -> Iterator[str]:
    if len(inputs) != 1:
        yield "is a view of one input"
        return
    kind = node.kind
    assert isinstance(kind, View)
    source, target = inputs[0].tensor, node.tensor
    if source.dtype != target.dtype:
        yield "is a view and keeps the dtype"
    if not _VIEW_RULES[type(kind.map)](kind.map, source, target):
        yield f"is no {kind.map} from {source} to {target}"


def _hints(kind: TensorType) -> list[int]:
    return [dim.hint for dim in kind.shape]


# One row a view map: does it lead from the source's shape to the target's (at captured sizes)?
_VIEW_RULES: dict[type, Callable[..., bool]] = {
    Permute: lambda m, s, t: (
        sorted(m.dims) == list(range(s.rank)) and [_hints(s)[d] for d in m.dims] == _hints(t)
    ),
    Reshape: lambda m, s, t: s.numel_hint == t.numel_hint,
    Expand: lambda m, s, t: _broadcasts(s, t),
    Unsqueeze: lambda m, s, t: [*_hints(s)[: m.dim], 1, *_hints(s)[m.dim :]] == _hints(t),
    Squeeze: lambda m, s, t: (
        all(_hints(s)[d] == 1 for d in m.dims)
        and [size for d, size in enumerate(_hints(s)) if d not in m.dims] == _hints(t)
    ),
    Slice: lambda m, s, t: (
        m.step > 0
        and 0 <= m.start.hint <= m.stop.hint <= s.shape[m.dim].hint
        and t.shape[m.dim].hint == -(-(m.stop.hint - m.start.hint) // m.step)
    ),
    Select: lambda m, s, t: (
        0 <= m.index.hint < s.shape[m.dim].hint
        and [size for d, size in enumerate(_hints(s)) if d != m.dim] == _hints(t)
    ),
    Flip: lambda m, s, t: _hints(s) == _hints(t),
    Roll: lambda m, s, t: (
        _hints(s) == _hints(t)
        and len(m.shifts) == len(m.dims)
        and all(0 <= dim < s.rank for dim in m.dims)
    ),
    DiagEmbed: lambda m, s, t: s.rank >= 1 and [*_hints(s), _hints(s)[-1]] == _hints(t),
    Diagonal: lambda m, s, t: (
        s.rank >= 2 and _hints(s)[-1] == _hints(s)[-2] and _hints(s)[:-1] == _hints(t)
    ),
}


_TOTALLED = (DType.F32, DType.F64, DType.I64)
"""Element types that sums and products are made in."""

_REDUCED: dict[Reduction, tuple[DType, ...]] = {
    **{op: _TOTALLED for op in (Reduction.SUM, Reduction.PRODUCT)},
    **{op: (DType.F32, DType.F64) for op in (Reduction.MOMENTS, Reduction.EXP_SUM)},
    **{op: (DType.BOOL,) for op in (Reduction.ANY, Reduction.ALL)},
}
"""Element types of what is reduced; for other reductions any real one."""


def _reduce(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Reduce)
    if len(inputs) != 1:
        yield "reduces one input"
        return
    source, dims = inputs[0].tensor, kind.dims
    allowed = _REDUCED.get(kind.op)
    if source.dtype.is_complex or (allowed and source.dtype not in allowed):
        yield f"takes no {kind.op} of {source}"
    if not dims or list(dims) != sorted(set(dims)) or not 0 <= dims[0] <= dims[-1] < source.rank:
        yield f"reduces the dimensions {dims} of {source}"
        return
    results = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    if isinstance(node.type, TupleType) != (kind.op.totals > 1) or len(results) != kind.op.totals:
        yield f"has {kind.op.totals} totals but is {node.type}"
    is_place = kind.op in (Reduction.ARGMAX, Reduction.ARGMIN)
    dtype = DType.I64 if is_place else source.dtype
    kept = [1 if at in dims else size for at, size in enumerate(_hints(source))]
    for result in results:
        if not isinstance(result, TensorType) or result.dtype != dtype or _hints(result) != kept:
            yield f"reduces {source} to {result}"


def _scan(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Scan)
    if len(inputs) != 1 or not _is_alike(inputs[0].tensor, node.tensor):
        yield "keeps the type of its one input"
        return
    if node.tensor.dtype not in _TOTALLED:
        yield f"accumulates in {node.tensor.dtype}"
    if not 0 <= kind.dim < node.tensor.rank:
        yield f"accumulates along dimension {kind.dim} of {node.tensor}"


def _loop(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Loop)
    if node.tensor.rank == 0 or not inputs:
        yield "carries one value along the first dimension of its result"
        return
    if kind.body.dtype != node.tensor.dtype or inputs[0].tensor.dtype != node.tensor.dtype:
        yield f"carries {inputs[0].tensor} and {kind.body.dtype} in {node.tensor}"
    operands = [part for part in walk(kind.body) if isinstance(part, Operand)]
    if any(part.index >= len(inputs) for part in operands):
        yield "reads an operand that is no input"
    if any(isinstance(part, Coordinate | Accumulator | Total) for part in walk(kind.body)):
        yield "has a body of operands alone"
    for at, item in enumerate(inputs):
        if item.is_scalar:
            continue
        sizes = [dim.hint for dim in item.tensor.shape]
        whole = [dim.hint for dim in node.tensor.shape[at == 0 :]]
        own = whole[len(whole) - len(sizes) :] if len(sizes) <= len(whole) else None
        if own is None or any(a not in (1, b) for a, b in zip(sizes, own, strict=True)):
            yield f"has input {at} as {item.tensor}, which does not broadcast to {node.tensor}"


def _is_alike(a: TensorType, b: TensorType) -> bool:
    return a.dtype == b.dtype and _hints(a) == _hints(b)


def _window(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Window)
    weights = inputs[1:]
    if len(weights) != kind.op.has_weights or inputs[0].tensor.dtype != node.tensor.dtype:
        yield "keeps the element type of its first input, and only products have weights"
        return
    count = len(kind.size)
    if {len(kind.stride), len(kind.padding), len(kind.dilation)} != {count}:
        yield f"gives other than {count} numbers for {count} dimensions"
        return
    source, target = _hints(inputs[0].tensor), _hints(node.tensor)
    if not 0 < count <= len(source) or source[:-count] != target[:-count]:
        yield f"pools {inputs[0].type} to {node.type}"
        return
    wanted = [*source[-count - 1 : -count], *kind.size]
    if kind.op is Pooling.DOT_LAST:
        wanted = [*kind.size[:-1], source[-1]]
        if (kind.size[-1], kind.stride[-1], kind.padding[-1]) != (1, 1, 0):
            yield f"has several channels in a window: {kind}"
            return
    if any(_hints(it.tensor) != wanted for it in weights):
        yield f"has weights of another shape than a channel's windows: {weights[0].type}"
        return
    if min(*kind.size, *kind.stride, *kind.dilation) < 1 or min(kind.padding) < 0:
        yield f"has a size, stride or dilation below 1, or a negative padding: {kind}"
        return
    for at in range(count):
        reach = kind.dilation[at] * (kind.size[at] - 1)
        room = source[at - count] + 2 * kind.padding[at] - reach - 1
        places = room // kind.stride[at] + 1, -(-room // kind.stride[at]) + 1
        if target[at - count] not in places:
            yield f"finds {target[at - count]} windows in {source[at - count]} elements: {kind}"


def _conv(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Conv)
    if node.origin is None:
        yield "is a convolution and needs the call it stands for"
    if len(inputs) - kind.operands not in (2, 3):
        yield f"convolves {len(inputs)} inputs"
        return
    count = len(kind.stride)
    if {len(kind.padding), len(kind.dilation)} != {count}:
        yield f"gives other than {count} numbers for {count} dimensions"
        return
    source, weight = (_hints(it.tensor) for it in inputs[:2])
    if kind.reduction is None:
        target = _hints(node.tensor)
    else:
        target = [dim.hint for dim in kind.reduction.shape]
        items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        found = [_hints(it) for it in items if isinstance(it, TensorType)]
        if found != _left_of(kind.reduction, target):
            yield f"reduces results of {target} to {node.type}: {kind.reduction}"
    if len(weight) != count + 2 or not 1 <= len(source) - count <= 2 or len(source) != len(target):
        yield f"convolves {inputs[0].type} with {inputs[1].type} to {node.type}"
        return
    channels, results = source[-count - 1], target[-count - 1]
    first, second = (channels, results) if kind.transposed else (results, channels)
    if weight[0] != first or weight[1] * kind.groups != second:
        yield f"has {channels} and {results} channels in {kind.groups} groups: {inputs[1].type}"
    if min(*kind.stride, *kind.dilation, kind.groups) < 1 or min(kind.padding) < 0:
        yield f"has a stride, dilation or groups below 1, or a negative padding: {kind}"


def _left_of(reduction: TileReduction, results: list[int]) -> list[list[int]]:
    """Sizes of all that a convolution's kernel writes of its results."""
    if reduction.moments is None:
        return [_reduced(reduction, results)]
    moments = [*results[:2], *[1] * len(results[2:])]
    written = [results] if reduction.moments is TileMoments.BESIDE else []
    return [*written, moments, moments]


def _reduced(reduction: TileReduction, results: list[int]) -> list[int]:
    """Sizes of what is left of them."""
    windows = zip(results[2:], reduction.window, strict=True)
    if reduction.is_whole:
        spatial = [size // window for size, window in windows]
    else:
        spatial = [-(-size // window) for size, window in windows]
    is_one = reduction.over_channels is not None and not reduction.keeps_channels
    return [results[0], 1 if is_one else results[1], *spatial]


def _recurrent(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Recurrent)
    if node.origin is None:
        yield "is a stack of layers and needs the call it stands for"
    results = node.type.items if isinstance(node.type, TupleType) else ()
    if len(inputs) != kind.input_count or len(results) != kind.first_weight:
        yield f"has {len(inputs)} inputs and {len(results)} results: {kind}"
        return
    states = [_hints(it.tensor) for it in inputs[1 : kind.first_weight]]
    batch, hidden = states[0][1:]
    sequence = _hints(inputs[0].tensor)
    if any(it != [kind.layers * kind.directions, batch, hidden] for it in states) or (
        len(sequence) != 3 or sequence[not kind.batch_first] != batch
    ):
        yield f"begins {inputs[0].type} with states {states}"
    rows = kind.cell.gates * hidden
    for at in range(kind.layers * kind.directions):
        first = kind.first_weight + at * kind.tensors_each
        below = kind.directions * hidden if at >= kind.directions else sequence[-1]
        sizes = [[rows, below], [rows, hidden], [rows], [rows]]
        own = [_hints(it.tensor) for it in inputs[first : first + kind.tensors_each]]
        if own != sizes[: kind.tensors_each]:
            yield f"has weights {own} of {sizes}"


def _attention(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Attention)
    if node.origin is None and kind.empty_is_zero and kind.order is None:
        yield "is attention and needs the call it stands for"
    if len(inputs) != kind.input_count:
        yield f"has {len(inputs)} inputs: {kind}"
        return
    q, k, v = (it.tensor for it in inputs[:3])
    if min(it.rank for it in (q, k, v)) < 2:
        yield f"has operands without rows: {q}, {k}, {v}"
        return
    depth, keys = q.shape[-1].hint, k.shape[-2].hint
    if k.shape[-1].hint != depth or v.shape[-2].hint != keys:
        yield f"has operands of other sizes: {q}, {k}, {v}"
    if kind.order is not None and sorted(kind.order) != list(range(node.tensor.rank)):
        yield f"orders dimensions as {kind.order}: {node.type}"
        return
    result = kind.rows_last(_hints(node.tensor))
    if list(result[-2:]) != [q.shape[-2].hint, v.shape[-1].hint]:
        yield f"gives {node.type} of {q} and {v}"
    dtypes = {node.tensor.dtype, q.dtype, k.dtype, v.dtype}
    if kind.masking is Masking.ADD:
        dtypes.add(inputs[3].tensor.dtype)
    if len(dtypes) > 1 or not q.dtype.is_float:
        yield f"computes with several types: {sorted(map(str, dtypes))}"
    if kind.masking is Masking.KEEP and inputs[3].tensor.dtype is not DType.BOOL:
        yield f"keeps scores by {inputs[3].tensor}"


def _gather(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Gather)
    if len(inputs) != 2:
        yield "gathers from one input by another"
        return
    source, index = inputs[0].tensor, inputs[1].tensor
    if index.dtype not in (DType.I64, DType.I32):
        yield f"is told places by {index}"
    if not 0 <= kind.dim < source.rank:
        yield f"gathers along dimension {kind.dim} of {source}"
        return
    shape = [*_hints(source)[: kind.dim], *_hints(index), *_hints(source)[kind.dim + 1 :]]
    if node.tensor.dtype != source.dtype or _hints(node.tensor) != shape:
        yield f"gathers {node.type} from {source} by {index}"


def _concat(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Concat)
    target = node.tensor
    if not inputs or not 0 <= kind.dim < target.rank:
        yield f"joins {len(inputs)} inputs along dimension {kind.dim} of {target}"
        return
    for item in inputs:
        source = item.tensor
        others = [_hints(x)[: kind.dim] + _hints(x)[kind.dim + 1 :] for x in (source, target)]
        if source.dtype != target.dtype or source.rank != target.rank or others[0] != others[1]:
            yield f"cannot join {item.name}: {source} into {target}"
            return
    if sum(item.tensor.shape[kind.dim].hint for item in inputs) != target.shape[kind.dim].hint:
        yield f"joins its inputs to another size than {target}"


def _write(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Write)
    if len(inputs) != 2 or inputs[0].type != node.type or not 0 <= kind.dim < node.tensor.rank:
        yield f"writes to dimension {kind.dim} of its first input, whose type it keeps"
        return
    part = inputs[1].tensor
    sizes = [*_hints(node.tensor)]
    sizes[kind.dim] = kind.stop.hint - kind.start.hint
    if part.dtype != node.tensor.dtype or _hints(part) != sizes:
        yield f"cannot write {part} to places {kind.start} to {kind.stop} of {node.type}"


def _pad(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Pad)
    if len(inputs) != 1 or inputs[0].tensor.dtype != node.tensor.dtype:
        yield "keeps the element type of its one input"
        return
    source = _hints(inputs[0].tensor)
    if not len(kind.before) == len(kind.after) == len(source):
        yield f"pads {len(kind.before)} and {len(kind.after)} of {len(source)} dimensions"
        return
    widths = zip(kind.before, source, kind.after, strict=True)
    if [sum(width) for width in widths] != _hints(node.tensor):
        yield f"pads {inputs[0].type} to {node.type}"


def _relayout(node: Node, inputs: list[Node]) -> Iterator[str]:
    if len(inputs) != 1 or inputs[0].type != node.type:
        yield "has the elements of its one input"


def _opaque(node: Node, inputs: list[Node]) -> Iterator[str]:
    if node.origin is None:
        yield "is opaque and needs the call it stands for"


def _project(node: Node, inputs: list[Node]) -> Iterator[str]:
    kind = node.kind
    assert isinstance(kind, Project)
    source = inputs[0].type if len(inputs) == 1 else None
    if not isinstance(source, TupleType) or kind.index >= len(source.items):
        yield f"takes item {kind.index} of {source}"


def _input(node: Node, inputs: list[Node]) -> Iterator[str]:
    yield from _leaf(node, inputs)
    if not isinstance(node.type, TensorType | ScalarType):
        yield "is an input, so it is a tensor or a scalar"


RULES: dict[type, Callable[[Node, list[Node]], Iterator[str]]] = {
    Input: _input,
    Parameter: _leaf,
    Constant: _leaf,
    Pointwise: _pointwise,
    Contract: _contract,
    Reduce: _reduce,
    Scan: _scan,
    Loop: _loop,
    Window: _window,
    Conv: _conv,
    Recurrent: _recurrent,
    Attention: _attention,
    Gather: _gather,
    Concat: _concat,
    Write: _write,
    Pad: _pad,
    View: _view,
    Relayout: _relayout,
    Opaque: _opaque,
    Project: _project,
}
