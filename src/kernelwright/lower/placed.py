"""Which values lie place by place, all channels of one after those of another, and which steps are
computed in that order."""

from collections.abc import Collection, Mapping

from kernelwright.ir.expr import has_coordinates, operations
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Conv,
    Pointwise,
    Pooling,
    Project,
    Reduce,
    Reduction,
    Reshape,
    Squeeze,
    View,
    Window,
)
from kernelwright.ir.sizes import product
from kernelwright.ir.types import TensorType

_MOST_HELD = 128
"""Elements of a row that threads along its neighbours keep in registers."""
_MOST_OPERATIONS = 3
"""In front of a value that totals are made of and that is written by place as well: with four of
them, two dear ones, a kernel that does both took 3.0 ms for 0.5 GB."""
_ORDERED = (Reduction.ARGMAX, Reduction.ARGMIN)
"""What counts the places of a row in the order of its dimensions."""


def to_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """The dimensions in the order of memory; `channels`: how many of them the channels are."""
    return (0, *range(1 + channels, rank), *range(1, 1 + channels))


def from_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """The order in which the dimensions in memory are seen."""
    return (0, *range(rank - channels, rank), *range(1, rank - channels))


def is_by_place(node: Node) -> bool:
    """Whether the node is a convolution that becomes a product of patches."""
    return isinstance(node.kind, Conv) and node.kind.by_place is not None


def placed(
    graph: Graph, convolutions: Collection[str], turned: Collection[str] = ()
) -> dict[str, int]:
    """The values that can be computed in the order of memory, and how many of their dimensions the
    channels are. `turned`: steps on other values that are, too."""
    known = {node.name: node for node in graph.nodes}
    users = graph.users()
    found: dict[str, int] = {}

    products = {name for name in convolutions if is_by_place(known[name])}

    def is_joined_for(node: Node) -> bool:
        """Whether only such convolutions read a concatenation, all of whose parts can be so. For
        products of patches other parts are turned, and steps may be computed before."""
        readers = [known[name] for name in users[node.name]]
        parts = [known[name] for name in node.inputs]
        if not readers or node.name in graph.results:
            return False
        if products and any(it.name in found for it in parts):
            return all(leads_to_products(it, node.name) for it in readers)
        return all(it.name in convolutions and it.inputs[0] == node.name for it in readers) and all(
            it.name in found or _has_one_reader(it, users) for it in parts
        )

    def leads_to_products(node: Node, source: str) -> bool:
        """Whether a reader of `source` is such a product, or a step before some, or is computed
        by place: totals, pooling, another concatenation."""
        if node.name in products:
            return node.inputs[0] == source
        if isinstance(node.kind, Concat | Reduce | Window):
            return True
        is_step = isinstance(node.kind, Pointwise) and not has_coordinates(node.kind.expr)
        if not is_step or node.tensor.shape != known[source].tensor.shape:
            return False
        return any(leads_to_products(known[it], node.name) for it in users[node.name])

    for node in graph.nodes:
        if isinstance(node.kind, Concat) and not is_joined_for(node):
            continue
        starts = node.name in convolutions or node.name in turned
        channels = 1 if starts else _channels(node, known, found)
        if channels is not None:
            found[node.name] = channels
    return found


def _has_one_reader(node: Node, users: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a step may be written by place for its reader."""
    return isinstance(node.kind, Pointwise) and len(users[node.name]) == 1


def _channels(node: Node, known: Mapping[str, Node], found: Mapping[str, int]) -> int | None:
    own = [name for name in node.inputs if name in found]
    if not own:
        return None
    source = known[own[0]]
    channels = found[source.name]
    match node.kind:
        case Pointwise(expr):
            ranks = {(known[name].tensor.rank, found[name]) for name in own}
            same = ranks == {(node.tensor.rank, channels)} and not has_coordinates(expr)
            return channels if same else None
        case Reduce(op):
            return None if op in _ORDERED else channels
        case Project():
            return channels
        case Window(op=Pooling.MAXIMUM | Pooling.SUM, size=size):
            dims = node.tensor.rank - 2
            return 1 if channels == 1 and len(size) == dims and dims in (2, 3) else None
        case Window(op=Pooling.DOT, size=size):
            is_image = len(size) == 2 == node.tensor.rank - 2
            return 1 if is_image and channels == 1 and own == [node.inputs[0]] else None
        case Concat(dim=1):
            return 1 if all(found[name] == 1 for name in own) else None
        case View(Squeeze(dims)):
            return channels if min(dims) > channels else None
        case View(Reshape()):
            return _regrouped(source.tensor, node.tensor, channels)
    return None


def _regrouped(source: TensorType, result: TensorType, channels: int) -> int | None:
    """The channels in groups, or groups as one, with all other dimensions as they were."""
    now = 1 + channels - (source.rank - result.rank)
    whole, parts = source.shape, result.shape
    if now - 1 not in (1, 2) or whole[0] != parts[0] or whole[1 + channels :] != parts[now:]:
        return None
    same = product(whole[1 : 1 + channels]) == product(parts[1:now])
    return now - 1 if same else None


def by_place(
    graph: Graph, convolutions: Collection[str], channels: Mapping[str, int]
) -> frozenset[str]:
    """Those of the values that are computed in the order of memory: what reduces or pools, steps on
    totals alone, steps after depthwise convolutions, what needs the totals of its own place, what
    other such convolutions read, and the steps before."""
    users = graph.users()
    known = {node.name: node for node in graph.nodes}
    totals = _steps_on_totals(graph, channels)
    epilogues = _epilogues_of_depthwise(graph, channels)
    sources = {node.name: node.inputs[0] for node in graph.nodes if node.name in convolutions}
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name not in channels or node.name in convolutions:
            continue
        readers = users[node.name]
        if (
            isinstance(node.kind, Reduce | Window | Project)
            or node.name in totals
            or node.name in epilogues
            or _needs_its_place(node, known)
            or any(name in found for name in readers)
            or any(sources.get(name) == node.name for name in readers)
        ):
            found.add(node.name)
    return frozenset(found)


def _epilogues_of_depthwise(graph: Graph, channels: Mapping[str, int]) -> set[str]:
    """Steps that such a convolution's kernel computes with its result, and narrows it."""
    users = graph.users()
    found: set[str] = set()
    for node in graph.nodes:
        if node.name not in channels:
            continue
        is_step = isinstance(node.kind, Pointwise) and any(
            name in found and len(users[name]) == 1 for name in node.inputs
        )
        if is_step or (isinstance(node.kind, Window) and node.kind.op is Pooling.DOT):
            found.add(node.name)
    return found


def _steps_on_totals(graph: Graph, channels: Mapping[str, int]) -> set[str]:
    """Totals, and steps that have an element for each of them: running statistics, a variance's
    square root. They are computed with the reduction that they follow."""
    known = {node.name: node for node in graph.nodes}
    found: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.kind, Reduce | Project) or (
            isinstance(node.kind, Pointwise)
            and any(name in found and _same_shape(known[name], node) for name in node.inputs)
            and all(name in found for name in node.inputs if name in channels)
        ):
            found.add(node.name)
    return found & channels.keys()


def _same_shape(one: Node, other: Node) -> bool:
    is_pair = isinstance(one.type, TensorType) and isinstance(other.type, TensorType)
    return is_pair and one.tensor.shape == other.tensor.shape


def joined_by_place(
    graph: Graph, convolutions: Collection[str], channels: Mapping[str, int]
) -> frozenset[str]:
    """Steps on other values that join what is computed by place, where all else that reads them can
    be computed so: convolutions, depthwise ones among them.

    Where they joined it, each of their channels would be read from a plane of its own.
    """
    users, wanted = graph.users(), by_place(graph, convolutions, channels)
    found: set[str] = set()
    for node in graph.nodes:
        if not _may_turn(node, graph) or node.name in channels:
            continue
        readers = [graph[name] for name in users[node.name]]
        joins = [it for it in readers if _joins(it, node) and it.name in wanted]
        others = (it for it in readers if it not in joins)
        if joins and all(_slides_over(it, node, convolutions) for it in others):
            found.add(node.name)
    return frozenset(found)


def _joins(reader: Node, node: Node) -> bool:
    """Whether it is a step of the same size."""
    return isinstance(reader.kind, Pointwise) and reader.tensor.shape == node.tensor.shape


def _slides_over(reader: Node, node: Node, convolutions: Collection[str]) -> bool:
    """Whether it convolves the value: all channels by place, or each by itself."""
    is_depthwise = isinstance(reader.kind, Window) and reader.kind.op is Pooling.DOT
    takes = is_depthwise or reader.name in convolutions
    return takes and reader.inputs[0] == node.name and node.name not in reader.inputs[1:-1]


def _may_turn(node: Node, graph: Graph) -> bool:
    """Whether a step's result may be written by place."""
    is_step = isinstance(node.kind, Pointwise) and not has_coordinates(node.kind.expr)
    return is_step and node.name not in graph.results


def turned_early(
    graph: Graph,
    convolutions: Collection[str],
    channels: Mapping[str, int],
    joined: Collection[str],
) -> frozenset[str]:
    """Steps on other values that nothing but such convolutions reads, those that join what is by
    place, and the steps before them.

    They read what lies in PyTorch's order and write by place: a copy less than in its own order.
    """
    users = graph.users()
    found = set(joined)

    def takes_by_place(name: str, node: Node) -> bool:
        reader = graph[name]
        if name in convolutions:
            return reader.inputs[0] == node.name and node.name not in reader.inputs[1:-1]
        if isinstance(reader.kind, Concat):
            return name in channels
        return name in found and reader.tensor.shape == node.tensor.shape

    for node in reversed(graph.nodes):
        if (
            _may_turn(node, graph)
            and node.name not in channels
            and users[node.name]
            and all(takes_by_place(name, node) for name in users[node.name])
        ):
            found.add(node.name)
    return frozenset(found)


def _needs_its_place(node: Node, known: Mapping[str, Node]) -> bool:
    """Whether it is a step on the elements of rows that reads totals of them, and a kernel that
    makes these has whole rows: a softmax over channels, a norm along the width."""
    if not isinstance(node.kind, Pointwise):
        return False
    sources = [known[name] for name in node.inputs]
    makers = [known[it.inputs[0]] if isinstance(it.kind, Project) else it for it in sources]
    return any(_has_whole_rows(it, node, known) for it in makers)


def _has_whole_rows(maker: Node, node: Node, known: Mapping[str, Node]) -> bool:
    if not isinstance(maker.kind, Reduce):
        return False
    dims, shape = maker.kind.dims, known[maker.inputs[0]].tensor.shape
    short = len(dims) == 1 and shape[dims[0]].hint <= _MOST_HELD
    return shape == node.tensor.shape and (short or dims == (1,))


def is_dear(node: Node, known: Mapping[str, Node]) -> bool:
    """Whether several readers are better served by a kernel that only writes the value.

    It joins values of its own size, so that readers do not repeat it, after many operations.
    """
    joins = sum(known[name].type == node.type for name in node.inputs) > 1
    return joins and _operations_before(node, known) > _MOST_OPERATIONS


def _operations_before(node: Node, known: Mapping[str, Node]) -> int:
    """Operations of a step and of those of its size before it, each once."""
    found: dict[str, int] = {}
    waiting = [node]
    while waiting:
        step = waiting.pop()
        if step.name in found:
            continue
        if isinstance(step.kind, Pointwise) and step.type == node.type:
            found[step.name] = operations(step.kind.expr)
            waiting += [known[name] for name in step.inputs]
    return sum(found.values())
