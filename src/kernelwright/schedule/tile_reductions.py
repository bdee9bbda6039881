"""Reductions of convolutions of ours, made by the kernel that has the results in its registers.

Over windows that lie side by side, over whole maps, which are windows first, and over channels:
there whole row programs, too. The results themselves are never written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import (
    Expr,
)
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Conv,
    Pooling,
    Reduce,
    Reduction,
    TileReduction,
    Window,
)
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.conv_configs import ranked_convolutions, why_not_reduced
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_or_library import planes_of, sizes_of
from kernelwright.schedule.conv_shape import MOST_PHASES
from kernelwright.schedule.naming import merge_operators
from kernelwright.schedule.tile_programs import program_after
from kernelwright.schedule.tile_steps import as_expression, is_by_channel, source_of

_EXTREMES = (Reduction.MAXIMUM, Reduction.MINIMUM)
_FOLDS = (*_EXTREMES, Reduction.SUM)
_POOLED = {Pooling.MAXIMUM: Reduction.MAXIMUM, Pooling.SUM: Reduction.SUM}
_MAP_WINDOWS = (8, 4, 2)
"""Sides of windows in which whole maps are reduced first."""


def with_tile_reductions(graph: Graph, machine: Machine) -> Graph:
    """The graph whose convolutions of ours reduce their results where that is faster by the model.

    What a reduced convolution leaves has the name of the last reduction that it makes.
    """
    if machine.convolutions is None:
        return graph
    editor = Editor(graph)
    for node in graph.nodes:
        if node.name in editor and isinstance(node.kind, Reduce | Window):
            found = _faster(_Found.of(editor, editor.node(node.name)), graph, machine)
            if found is not None:
                editor.replace(found.last, found.nodes())
                editor.drop_unread()
    return editor.graph()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A convolution, the steps after it, and the reductions that its kernel may make."""

    conv: Node
    steps: tuple[Node, ...]
    """In the order of the graph."""
    operands: tuple[str, ...]
    """What the steps read besides."""
    value: Expr
    """The steps."""
    window: tuple[int, ...] | None = None
    is_whole: bool = True
    over_windows: Reduction | None = None
    over_channels: Reduction | None = None
    result: Expr | None = None
    """What the totals of channels become."""
    last: Node
    """The last of the reductions."""
    reductions: tuple[Node, ...]
    """Those that are made whole."""
    rest: Node | None = None
    """A reduction of what is left of windows."""

    @staticmethod
    def of(editor: Editor, reduction: Node) -> "Iterator[_Found]":
        """The ways to make this reduction, and those after it, in a convolution's kernel."""
        program = program_after(editor, reduction)
        last = reduction if program is None else program.step
        source = source_of(editor, reduction, last)
        if source is None:
            return
        conv, steps = source
        operands, value = as_expression(conv, steps, editor.node(reduction.inputs[0]))
        if not all(is_by_channel(editor.node(name), conv) for name in operands):
            return
        start = _Found(
            conv=conv,
            steps=tuple(reversed(steps)),
            operands=operands,
            value=value,
            result=None if program is None else program.result,
            last=last,
            reductions=(reduction,) if program is None else (reduction, last),
        )
        if program is not None:
            if conv.tensor.dtype is DType.F32:
                yield replace(start, over_channels=Reduction.EXP_SUM)
            return
        yield from _over_windows(editor, start, reduction)
        yield from _over_maps(start, reduction)
        over = _over_channels(start, reduction)
        if over is not None:
            yield over

    def nodes(self) -> tuple[Node, ...]:
        """The convolution that reduces, and what is left to do."""
        conv = self.conv
        assert isinstance(conv.kind, Conv)
        spatial = len(conv.kind.stride)
        reduction = TileReduction(
            shape=conv.tensor.shape,
            value=self.value,
            operands=len(self.operands),
            is_whole=self.is_whole,
            window=self.window or (1,) * spatial,
            over_windows=self.over_windows,
            over_channels=self.over_channels,
            result=self.result,
        )
        kind = replace(conv.kind, reduction=reduction)
        members = (conv, *self.steps, *self.reductions)
        made = replace(
            conv,
            name=self.last.name if self.rest is None else f"{conv.name}_in_windows",
            kind=kind,
            type=self.last.type if self.rest is None else self._left(reduction),
            inputs=(*conv.inputs, *self.operands),
            part_of=None,
            operators=merge_operators(*(node.operators for node in members)),
        )
        if self.rest is None:
            return (made,)
        return (made, replace(self.rest, inputs=(made.name,), part_of=None))

    def _left(self, reduction: TileReduction) -> TensorType:
        """The type of what is left of windows, the last ones of which may be parts."""
        sizes = map(_parts, reduction.shape[2:], reduction.window)
        return TensorType(self.conv.tensor.dtype, (*reduction.shape[:2], *sizes))


def _parts(size: Dim, window: int) -> Dim:
    """Windows along a dimension, the last one of which may be a part."""
    count = -(-size.hint // window)
    if window == 1 or size.is_static:
        return size if window == 1 else Dim.static(count)
    return Dim(f"({size.text} + {window - 1}) // {window}", count)


def _faster(found: "Iterator[_Found]", graph: Graph, machine: Machine) -> _Found | None:
    """The way that takes the least time, where that is less than writing the results."""
    best: _Found | None = None
    least = 0.0
    ways = list(found)
    most = max((len(one.reductions) for one in ways), default=0)
    for one in ways:
        assert isinstance(one.conv.kind, Conv) and one.conv.kind.rounding is not None
        planes = planes_of(one.conv.kind.rounding)
        written = ranked_convolutions(sizes_of(one.conv, graph), planes, machine)
        node = one.nodes()[0]
        sizes = sizes_of(node, graph)
        if why_not_reduced(sizes) is not None:
            continue
        ranked = ranked_convolutions(sizes, planes, machine)
        if not ranked or not written:
            continue
        if best is None:
            reading = one.conv.tensor.bytes_hint / conv_rates(machine).turning_bandwidth
            if sizes.keeps_channels:
                reading += one.last.tensor.bytes_hint / conv_rates(machine).turning_bandwidth
            least = written[0][0] + reading + machine.launches.next_seconds
        seconds = ranked[0][0]
        if one.rest is not None or len(one.reductions) < most:
            # Somebody reads what is left and goes on.
            seconds += node.tensor.bytes_hint / conv_rates(machine).turning_bandwidth
            seconds += machine.launches.next_seconds
        if seconds < least:
            best, least = one, seconds
    return best


def _over_windows(editor: Editor, start: _Found, reduction: Node) -> Iterator[_Found]:
    """The windows, windows of these, and channels after them."""
    window = reduction.kind
    if not isinstance(window, Window) or not _lie_side_by_side(window):
        return
    over, size, last = _POOLED[window.op], window.size, reduction
    conv = start.conv.kind
    assert isinstance(conv, Conv)
    if len(size) != len(conv.stride) or not _is_whole(reduction, start.conv.tensor.shape, size):
        return
    while True:
        found = replace(start, window=size, over_windows=over, last=last)
        yield found
        reader = _only_reader(editor, last)
        if reader is None:
            return
        after = reader.kind
        if isinstance(after, Reduce):
            channels = _over_channels(found, reader)
            if channels is not None:
                yield channels
            return
        if not isinstance(after, Window) or not _lie_side_by_side(after):
            return
        if _POOLED[after.op] is not over or len(after.size) != len(size):
            return
        if not _is_whole(reader, last.tensor.shape, after.size):
            return
        size = tuple(own * outer for own, outer in zip(size, after.size, strict=True))
        last = reader
        start = replace(start, reductions=(*start.reductions, reader))


def _lie_side_by_side(window: Window) -> bool:
    is_apart = window.stride == window.size and not any(window.padding)
    return window.op in _POOLED and is_apart and max(window.dilation) == 1


def _is_whole(node: Node, source: tuple[Dim, ...], size: tuple[int, ...]) -> bool:
    """Whether parts of windows are left out."""
    results = node.tensor.shape[-len(size) :]
    pooled = zip(results, source[-len(size) :], size, strict=True)
    return all(dim.hint == whole.hint // window for dim, whole, window in pooled)


def _only_reader(editor: Editor, node: Node) -> Node | None:
    readers = editor.readers(node.name)
    if editor.is_shown(node.name) or len(readers) != 1:
        return None
    return editor.node(next(iter(readers)))


def _over_channels(start: _Found, reduction: Node) -> _Found | None:
    kind = reduction.kind
    if not isinstance(kind, Reduce) or kind.dims != (1,) or kind.op not in _FOLDS:
        return None
    reductions = tuple(dict.fromkeys((*start.reductions, reduction)))
    return replace(start, over_channels=kind.op, last=reduction, reductions=reductions)


def _over_maps(start: _Found, reduction: Node) -> Iterator[_Found]:
    """Windows of dimensions that are reduced, the last ones of which may be parts.

    Sums follow from moments, which no phases of windows are summed for (tile_moments.py).
    """
    kind, conv = reduction.kind, start.conv
    if not isinstance(kind, Reduce) or kind.op not in _EXTREMES:
        return
    if conv.tensor.dtype is not DType.F32:
        return
    if min(kind.dims) < 2:
        return
    for side in _MAP_WINDOWS:
        window = tuple(
            min(side, dim.hint) if at in kind.dims else 1
            for at, dim in enumerate(conv.tensor.shape)
            if at >= 2
        )
        if max(window) <= MOST_PHASES and prod(window) > 1:
            yield replace(
                start,
                window=window,
                is_whole=False,
                over_windows=kind.op,
                reductions=(),
                rest=reduction,
            )
