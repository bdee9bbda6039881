"""Views of views as one: dimensions cut into parts, the parts in another order, some joined.

A `Reshape` that joins dimensions copies them where they lie apart. Two that undo each other around
a permutation need not, once the parts are known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Permute, Reshape, Squeeze, Unsqueeze, View, ViewMap
from kernelwright.ir.sizes import ONE, are_equal, product, quotient
from kernelwright.ir.types import Dim
from kernelwright.lower.layouts import view_of
from kernelwright.rewrite.surroundings import Surroundings


@dataclass(slots=True, eq=False)
class Part:
    """A run of places; it may turn out to be made of parts itself, the outermost first."""

    size: Dim
    inner: "list[Part]" = field(default_factory=list)

    def leaves(self) -> "list[Part]":
        """What it is made of, itself where it is whole."""
        return [leaf for part in self.inner for leaf in part.leaves()] if self.inner else [self]

    def cut(self, outer: Dim) -> bool:
        """Whether a whole part could be made of `outer` runs of a smaller one."""
        rest = quotient(self.size, outer)
        if rest is None:
            return False
        self.inner = [Part(outer), Part(rest)]
        return True


Parts = list[Part]
"""Parts of one dimension, the outermost first: none of a dimension of size 1."""


def leaves(parts: Iterable[Part]) -> list[Part]:
    """The parts that these are made of."""
    return [leaf for part in parts for leaf in part.leaves()]


def parts_of(shape: Sequence[Dim]) -> list[Parts]:
    """A part for each dimension."""
    return [[] if size == ONE else [Part(size)] for size in shape]


def split(parts: Parts, sizes: Sequence[Dim]) -> list[Parts] | None:
    """The parts in a run for each size, which some are cut for; None where that is not known."""
    waiting = leaves(parts)
    found: list[Parts] = []
    for size in sizes:
        run: Parts = []
        while not are_equal([part.size for part in run], [size]):
            if not waiting:
                return None
            rest = quotient(size, product([part.size for part in run]))
            if rest is None:
                return None
            if rest.hint < waiting[0].size.hint:
                cut = waiting.pop(0)
                if not cut.cut(rest):
                    return None
                waiting[:0] = cut.inner
            run.append(waiting.pop(0))
        found.append(run)
    return None if waiting else found


def seen(index_map: ViewMap, dims: list[Parts], shape: Sequence[Dim]) -> list[Parts] | None:
    """The dimensions of a view of this shape; None of a view that does more than to arrange."""
    match index_map:
        case Permute(order):
            return [dims[d] for d in order]
        case Reshape():
            return split([part for run in dims for part in run], shape)
        case Squeeze(gone):
            return [run for d, run in enumerate(dims) if d not in gone]
        case Unsqueeze(dim):
            return [*dims[:dim], [], *dims[dim:]]
    return None


def shown(index_map: ViewMap, dims: list[Parts], shape: Sequence[Dim]) -> list[Parts] | None:
    """The dimensions of the source, of this shape, of a view that has these."""
    match index_map:
        case Permute(order):
            return [dims[order.index(d)] for d in range(len(order))]
        case Reshape():
            return split([part for run in dims for part in run], shape)
        case Squeeze(gone):
            rest = iter(dims)
            return [[] if d in gone else next(rest) for d in range(len(shape))]
        case Unsqueeze(dim):
            return [*dims[:dim], *dims[dim + 1 :]]
    return None


@dataclass(frozen=True, slots=True)
class Chain:
    """A node, and how views that follow each other arrange it."""

    source: Node
    whole: list[Parts]
    """Dimensions of the source."""
    dims: list[Parts]
    """Dimensions that are seen."""
    views: tuple[Node, ...]
    """The views, the first of them next to the source."""

    @property
    def joins(self) -> bool:
        """Whether a dimension that is seen is made of several parts."""
        return any(len(leaves(run)) > 1 for run in self.dims)


def chain_of(around: Surroundings, name: str) -> Chain:
    """The views from the node `name` down to what they show."""
    views: list[Node] = []
    node = around.node(name)
    while isinstance(node.kind, View) and isinstance(
        node.kind.map, Permute | Reshape | Squeeze | Unsqueeze
    ):
        views.append(node)
        node = around.node(node.inputs[0])
    whole = parts_of(node.tensor.shape)
    dims = list(whole)
    source, composed = node, []
    for view in reversed(views):
        assert isinstance(view.kind, View)
        after = seen(view.kind.map, dims, view.tensor.shape)
        composed.append(view)
        if after is None:
            source, composed, whole = view, [], parts_of(view.tensor.shape)
            after = list(whole)
        dims = after
    return Chain(source, whole, dims, tuple(composed))


def arranged(
    around: Surroundings, source: Node, whole: list[Parts], dims: Sequence[Parts]
) -> tuple[Node, ...]:
    """Views of `source`, whose dimensions are `whole`, that have `dims`: none where it has them."""
    wanted = [leaves(run) for run in dims]
    own, flat = _runs([leaves(run) for run in whole], wanted)
    made: list[Node] = []

    def push(index_map: ViewMap, shape: Sequence[Dim]) -> None:
        before = made[-1] if made else source
        if before.tensor.shape == tuple(shape) and isinstance(index_map, Reshape):
            return
        made.append(view_of(around.fresh(source.name), before, index_map, shape, source))

    order = tuple(own.index(run) for run in flat)
    if order != tuple(range(len(own))):
        push(Reshape(), [_size(run) for run in own])
        push(Permute(order), [_size(run) for run in flat])
    push(Reshape(), [_size(run) for run in wanted])
    return tuple(made)


def _size(run: Sequence[Part]) -> Dim:
    return run[0].size if len(run) == 1 else product([leaf.size for leaf in run])


def _runs(own: list[Parts], wanted: list[Parts]) -> tuple[list[Parts], list[Parts]]:
    """Parts in the order of the source and as wanted, those together that stay together."""
    after = {pair for run in wanted for pair in pairwise(run)}
    runs: list[Parts] = []
    for dim in own:
        for at, leaf in enumerate(dim):
            if at and (dim[at - 1], leaf) in after:
                runs[-1].append(leaf)
            else:
                runs.append([leaf])
    heads = {run[0]: run for run in runs}
    return runs, [heads[leaf] for run in wanted for leaf in run if leaf in heads]
