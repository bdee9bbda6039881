"""Moments of convolutions of ours, made by the kernel that has the results in its registers.

Norms need the moments of results before they read them, and averages over maps need no more. So
results are read once less, and where only moments are asked for they are never written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.anchors import Extent, Fold, RowProgram, RowResult
from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import Call, Expr, Operand, Size, Total, has_coordinates
from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import (
    Conv,
    Pointwise,
    Project,
    Reduce,
    Reduction,
    Reshape,
    TileMoments,
    TileReduction,
    View,
)
from kernelwright.ir.row_configs import GridRows, RingRows, ShortRows
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import DType, TensorType, TupleType
from kernelwright.lower.convolution_steps import with_whole_steps
from kernelwright.lower.layouts import view_of
from kernelwright.lower.split_reductions import moments_of_parts
from kernelwright.machine import Machine
from kernelwright.schedule.conv_configs import ranked_convolutions
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_or_library import planes_of, sizes_of
from kernelwright.schedule.naming import merge_operators
from kernelwright.schedule.row_configs import row_configs
from kernelwright.schedule.tile_steps import as_expression, fits_registers, is_by_channel

_LINEAR = frozenset(("add", "sub", "neg"))


def with_tile_moments(graph: Graph, machine: Machine) -> Graph:
    """The graph whose convolutions of ours make moments of their results where that is faster by
    the model; the same graph where none does."""
    if machine.convolutions is None:
        return graph
    # A kernel has a step on groups of its channels as well as one on whole channels.
    whole = with_whole_steps(graph)
    editor, changed = Editor(whole), False
    for node in whole.nodes:
        if node.name in editor and isinstance(node.kind, Conv):
            found = _Found.of(editor, editor.node(node.name))
            if found is not None and _is_faster(found, whole, machine):
                found.put(editor)
                editor.drop_unread()
                changed = True
    return editor.graph() if changed else graph


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """A reduction whose totals follow from moments of maps."""

    node: Node
    source: Node
    """The results, or their view with channels in groups."""
    steps: tuple[Node, ...]
    """Between them, of a sum: its terms are linear in the results."""
    totals: tuple[Node, ...]
    """Nodes that take one of several totals out."""

    spatial: tuple[int, ...]
    """Dimensions of maps."""

    @property
    def rest(self) -> tuple[int, ...]:
        """The other dimensions that are reduced."""
        assert isinstance(self.node.kind, Reduce)
        return tuple(dim for dim in self.node.kind.dims if dim not in self.spatial)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A convolution, the steps after it, and what is made of the moments of their results."""

    conv: Node
    steps: tuple[Node, ...]
    last: Node
    """The last of the steps, or the convolution."""
    operands: tuple[str, ...]
    """What the steps read besides."""
    value: Expr
    """The steps."""
    sums: tuple[_Sum, ...]
    how: TileMoments

    @staticmethod
    def of(editor: Editor, conv: Node) -> "_Found | None":
        """The moments that a convolution's kernel may make; None where nobody asks for them."""
        kind = conv.kind
        assert isinstance(kind, Conv)
        is_ours = kind.rounding is not None and kind.reduction is None
        if not is_ours or conv.tensor.dtype is not DType.F32:
            return None
        last, steps = conv, list[Node]()
        while not (sums := tuple(_sums(editor, last, conv))):
            reader = _only_step(editor, last, conv)
            if reader is None:
                return None
            last = reader
            steps.append(last)
        if not fits_registers(steps):
            return None
        operands, value = as_expression(conv, tuple(reversed(steps)), last)
        alone = _are_read_by(editor, last, sums)
        return _Found(
            conv=conv,
            steps=tuple(steps),
            last=last,
            operands=operands,
            value=value,
            sums=sums,
            how=TileMoments.ALONE if alone else TileMoments.BESIDE,
        )

    def made(self, name: str) -> Node:
        """The convolution that makes the moments."""
        conv, kind = self.conv, self.conv.kind
        assert isinstance(kind, Conv)
        reduction = TileReduction(
            shape=conv.tensor.shape,
            value=self.value,
            operands=len(self.operands),
            is_whole=True,
            window=(1,) * len(kind.stride),
            over_windows=None,
            over_channels=None,
            moments=self.how,
        )
        results = (self.last.tensor,) if self.how is TileMoments.BESIDE else ()
        return replace(
            conv,
            name=name,
            kind=replace(kind, reduction=reduction),
            type=TupleType((*results, self.moments, self.moments)),
            inputs=(*conv.inputs, *self.operands),
            part_of=None,
            operators=merge_operators(*(node.operators for node in (conv, *self.steps))),
        )

    @property
    def moments(self) -> TensorType:
        """The type of means, and of spreads."""
        shape = self.conv.tensor.shape
        return TensorType(DType.F32, (*shape[:2], *[ONE] * len(shape[2:])))

    def put(self, editor: Editor) -> None:
        """Put the convolution that makes moments, and what follows from these."""
        name = editor.named(f"{self.conv.name}_moments", ())
        made = self.made(name)
        first = 1 if self.how is TileMoments.BESIDE else 0
        mean, spread = (
            Node(
                name=editor.named(f"{self.conv.name}_{what}", (name,)),
                kind=Project(first + at),
                type=self.moments,
                inputs=(name,),
                source=made.source,
            )
            for at, what in enumerate(("mean", "spread"))
        )
        results = replace(
            self.last, kind=Project(0), inputs=(name,), origin=None, part_of=None, operators=()
        )
        # Where nobody reads the results in the end, what computed them goes.
        last = results if self.how is TileMoments.BESIDE else editor.node(self.last.name)
        editor.replace(self.last, (made, mean, spread, last))
        for one in self.sums:
            _put_totals(editor, one, mean, spread)


# --- What reads results ------------------------------------------------------------------------


def _only_step(editor: Editor, last: Node, conv: Node) -> Node | None:
    """The step that alone reads a value and that a kernel may compute of its sums."""
    readers = editor.readers(last.name)
    if editor.is_shown(last.name) or len(readers) != 1:
        return None
    step = editor.node(next(iter(readers)))
    if not isinstance(step.kind, Pointwise) or step.type != conv.type:
        return None
    others = (editor.node(name) for name in step.inputs if name != last.name)
    fits = not has_coordinates(step.kind.expr) and all(is_by_channel(it, conv) for it in others)
    return step if fits else None


def _sums(editor: Editor, last: Node, conv: Node) -> Iterator[_Sum]:
    """The reductions that moments of each map are enough for."""
    assert isinstance(conv.kind, Conv)
    for source in (last, *_views_in_groups(editor, last)):
        rank = source.tensor.rank
        spatial = tuple(range(rank - len(conv.kind.stride), rank))
        for name in editor.ordered(editor.readers(source.name)):
            reader, steps = editor.node(name), list[Node]()
            while _is_linear(editor, reader, source, steps, len(spatial)):
                steps.append(reader)
                reader = editor.node(next(iter(editor.readers(reader.name))))
            if not isinstance(reader.kind, Reduce) or not set(spatial) <= set(reader.kind.dims):
                continue
            totals = tuple(map(editor.node, editor.ordered(editor.readers(reader.name))))
            if reader.kind.op is Reduction.SUM and reader.tensor.dtype is DType.F32:
                yield _Sum(
                    node=reader, source=source, spatial=spatial, steps=tuple(steps), totals=()
                )
            is_shown = any(editor.is_shown(it.name) for it in totals)
            if reader.kind.op is Reduction.MOMENTS and not steps and not is_shown:
                yield _Sum(node=reader, source=source, spatial=spatial, steps=(), totals=totals)


def _views_in_groups(editor: Editor, last: Node) -> Iterator[Node]:
    """Views of the results that put channels in groups."""
    shape = last.tensor.shape
    for name in editor.ordered(editor.readers(last.name)):
        view = editor.node(name)
        if isinstance(view.kind, View) and isinstance(view.kind.map, Reshape):
            own = view.tensor.shape
            is_grouped = len(own) == len(shape) + 1 and own[3:] == shape[2:]
            if is_grouped and own[0] == shape[0] and not editor.is_shown(name):
                yield view


def _is_linear(
    editor: Editor, step: Node, source: Node, before: Sequence[Node], spatial: int
) -> bool:
    """Whether a node is a step that one other reads and that is linear in each place's result."""
    if not isinstance(step.kind, Pointwise) or step.type != source.type:
        return False
    if editor.is_shown(step.name) or len(editor.readers(step.name)) != 1:
        return False
    wide = {source.name, *(it.name for it in before)}
    for name in step.inputs:
        kind = editor.node(name).type
        is_wide = isinstance(kind, TensorType) and any(it != ONE for it in kind.shape[-spatial:])
        if is_wide and name not in wide:
            return False
    return _degree(step.kind.expr, {at for at, it in enumerate(step.inputs) if it in wide}) == 1


def _degree(expr: Expr, wide: set[int]) -> int | None:
    """The degree of an expression in these operands, 0 or 1; None of others."""
    if not isinstance(expr, Call):
        return int(isinstance(expr, Operand) and expr.index in wide)
    degrees = [_degree(arg, wide) for arg in expr.args]
    if all(it == 0 for it in degrees):
        return 0
    found = [it for it in degrees if it is not None]
    if len(found) < len(degrees):
        return None
    if expr.op in _LINEAR:
        return max(found)
    if expr.op == "mul":
        return sum(found) if sum(found) <= 1 else None
    return found[0] if expr.op == "div" and found[1] == 0 else None


def _are_read_by(editor: Editor, last: Node, sums: Sequence[_Sum]) -> bool:
    """Whether nobody reads the results but for these reductions."""
    if editor.is_shown(last.name):
        return False
    inside = {it.name for one in sums for it in (one.node, *one.steps)}
    views = {one.source.name for one in sums} - {last.name}
    readers = set(editor.readers(last.name)).union(*map(editor.readers, views))
    return readers <= inside | views


# --- What follows from moments -----------------------------------------------------------------


def _put_totals(editor: Editor, one: _Sum, mean: Node, spread: Node) -> None:
    """Put the totals of a reduction, made of the moments of maps."""
    made: list[Node] = []

    def add(stem: str, node: Node) -> Node:
        made.append(replace(node, name=editor.named(stem, [it.name for it in made])))
        return made[-1]

    small = tuple(
        ONE if at in one.spatial else dim for at, dim in enumerate(one.source.tensor.shape)
    )
    kind = TensorType(DType.F32, small)
    if kind != mean.type:
        mean, spread = (
            add(f"{it.name}_in_groups", view_of(it.name, it, Reshape(), small, it))
            for it in (mean, spread)
        )
    if one.totals:
        _put_moments(editor, one, (mean, spread), made)
        return
    value, names = mean, {one.source.name: mean.name}
    for step in one.steps:
        now = rename_inputs(editor.node(step.name), names)
        named = replace(now, type=kind, origin=None, part_of=None)
        value = add(f"{step.name}_of_means", named)
        names[step.name] = value.name
    count = product([one.source.tensor.shape[dim] for dim in one.spatial])
    whole = Call("mul", (Operand(0, DType.F32), Size(count, DType.F32)), DType.F32)
    total = replace(
        one.node,
        kind=Pointwise(whole),
        type=kind,
        inputs=(value.name,),
        origin=None,
        part_of=None,
    )
    if one.rest:
        value = add(f"{one.node.name}_of_maps", total)
        total = replace(
            one.node, kind=Reduce(Reduction.SUM, one.rest), inputs=(value.name,), part_of=None
        )
    editor.replace(one.node, (*made, replace(total, name=one.node.name)))


def _put_moments(editor: Editor, one: _Sum, moments: tuple[Node, Node], made: list[Node]) -> None:
    """Put moments of maps together, and give them to who takes them out."""
    totals: Sequence[Node] = moments
    if one.rest:
        taken = {*editor.ordered(), *(it.name for it in made)}
        sizes = one.source.tensor.shape
        staged = moments_of_parts(one.node, moments, sizes, (one.spatial, one.rest), taken)
        made += staged.nodes
        totals = staged.totals
    if made:
        editor.replace(one.node, tuple(made))
    for total in one.totals:
        assert isinstance(total.kind, Project)
        editor.replace(editor.node(total.name), (totals[total.kind.index],))


# --- What it costs -----------------------------------------------------------------------------


def _is_faster(found: _Found, graph: Graph, machine: Machine) -> bool:
    """Whether a kernel with moments, and what combines them, takes less than reading results."""
    conv = found.conv
    assert isinstance(conv.kind, Conv) and conv.kind.rounding is not None
    planes = planes_of(conv.kind.rounding)
    written = ranked_convolutions(sizes_of(conv, graph), planes, machine)
    made = replace(found.made(conv.name), inputs=conv.inputs)
    moments = ranked_convolutions(sizes_of(made, graph), planes, machine)
    if not written or not moments:
        return False
    rates = conv_rates(machine)
    reading = conv.tensor.bytes_hint / rates.turning_bandwidth
    reads = sum(not is_held(one, found.how, machine) for one in found.sums)
    before = written[0][0] + reads * (reading + machine.launches.next_seconds)
    after = moments[0][0] + machine.launches.next_seconds * len(found.sums)
    # The model may be wrong.
    return rates.margin * after < before


def is_held(one: _Sum, how: TileMoments, machine: Machine) -> bool:
    """Whether a kernel for rows keeps the results that it normalises, and reads them once."""
    assert isinstance(one.node.kind, Reduce)
    if how is TileMoments.ALONE or not one.totals:
        return False
    source = one.source.tensor
    value, mean = Operand(0, source.dtype), Total(0, source.dtype)
    norm = RowProgram(
        shape=source.shape,
        dims=one.node.kind.dims,
        folds=(Fold(op=one.node.kind.op, value=value, totals=(source.dtype, source.dtype)),),
        results=(RowResult(value=Call("sub", (value, mean), source.dtype), extent=Extent.ELEMENT),),
    )
    best = row_configs(norm, (source,), machine)[0].tuned
    return isinstance(best, RingRows | GridRows | ShortRows) or getattr(best, "holds", False)
