"""Whether a convolution is ours or the library's, and with how many products it is ours."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import ceil, prod
from types import MappingProxyType

from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import ByPlace, Concat, Contract, Conv, Opaque, Pointwise, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import DType, TensorType
from kernelwright.lower.memory_format import as_called, is_on_channels_last
from kernelwright.machine import Machine
from kernelwright.schedule.conv_configs import ranked_convolutions
from kernelwright.schedule.conv_instructions import long_instructions
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_shape import ConvSizes, conv_sizes, differs_by_place
from kernelwright.schedule.legality import MAY_BE, SMALL, Library
from kernelwright.schedule.wide_ranges import why_wide

_TILE_CHANNELS = 32
"""Input channels of cuDNN's tiles in TF32."""
_CHAIN = 4
"""Convolutions and products of a graph from which one call of the library among launches of ours
counts as long as the host needs for it, where the card needs less."""
_TF32_VECTOR = 4
"""Numbers of 16 bytes: of other numbers cuDNN's kernels in TF32 load them one by one."""
_VECTOR_BYTES = 16
"""Bytes of channels, as many of which a copy of patches has."""
_SHORT_VECTOR = 8
"""Numbers of 16 bits in 16 bytes: it fills up other channels first, or takes older kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Modelled seconds of both sides."""

    ours: float
    library: float
    after: float = 0.0
    """A kernel after the library's for steps that ours computes where it stores its sums."""

    def __str__(self) -> str:
        after = f" and {self.after * 1e6:.3g} us for what follows" if self.after else ""
        return (
            f"modelled {self.ours * 1e6:.3g} us, the library {self.library * 1e6:.3g} us at its "
            f"best{after}"
        )


def sizes_of(node: Node, graph: Graph) -> ConvSizes:
    """The captured sizes of a convolution."""
    assert isinstance(node.kind, Conv)
    data, weight = (graph[name].tensor for name in node.inputs[:2])
    return conv_sizes(node.kind, data, weight, node.type)


def rounding_of(sizes: ConvSizes, machine: Machine) -> Rounding:
    """What a convolution may round to, and be no less accurate than cuDNN's.

    cuDNN takes TF32 for float32 operands (if the user lets it, as PyTorch does) where they have
    channels enough; of few channels, of groups and of other small calls it mostly takes float32.
    """
    if sizes.dtype is not DType.F32:
        return Rounding.SHORT
    moved = 4 * (sizes.input_elements + sizes.output_elements)
    is_known = _small_takes_tf32(sizes, machine)
    least = machine.library.tf32_bytes if is_known else machine.launches.stage_bytes
    enough = sizes.groups == 1 and moved >= least
    is_tf32 = _takes_tf32(sizes, machine) or _is_first(sizes, machine)
    is_strided = sizes.taps == 1 and any(axis.stride > 1 for axis in sizes.axes)
    enough &= not is_strided or sizes.in_channels >= machine.library.tf32_strided_channels
    return Rounding.MEASURED_SIZES if enough and is_tf32 else Rounding.NONE


def tf32_elements(sizes: ConvSizes, machine: Machine) -> int:
    """Elements of an input from which on a convolution is known to take TF32 that takes it at these
    sizes, whatever the others are."""
    of_any_map = sizes.taps > 1 or sizes.in_channels >= machine.library.tf32_odd_channels
    is_known = of_any_map and _small_takes_tf32(sizes, machine)
    least = machine.library.tf32_bytes if is_known else machine.launches.stage_bytes
    return ceil(least / sizes.dtype.itemsize)


def _small_takes_tf32(sizes: ConvSizes, machine: Machine) -> bool:
    """Whether small calls of the kind were seen in TF32 alone."""
    if sizes.spatial != 2 or sizes.transposed or sizes.turned:
        return False
    rates = machine.library
    is_odd = sizes.taps == 1 and prod(axis.out for axis in sizes.axes) % _TF32_VECTOR != 0
    least = rates.tf32_odd_channels if is_odd else rates.tf32_channels
    return sizes.in_channels >= least and sizes.out_channels >= rates.tf32_channels


def _takes_tf32(sizes: ConvSizes, machine: Machine) -> bool:
    rates = machine.library
    if sizes.transposed:
        return sizes.spatial < 3 or sizes.taps <= rates.channels_last_taps
    is_few = sizes.spatial == 3 and sizes.out_channels <= rates.channels_last_few_results
    least = rates.channels_last_few if is_few else rates.channels_last_channels
    return sizes.in_channels >= least


def _is_first(sizes: ConvSizes, machine: Machine) -> bool:
    """Whether a large filter walks over an image, as at the beginning of a network: cuDNN's TF32
    kernel for it is no faster than float32."""
    rates = machine.library
    is_usual = sizes.spatial == 2 and not sizes.transposed and not sizes.turned
    walks = is_usual and all(axis.stride > 1 for axis in sizes.axes)
    is_image = sizes.in_channels <= rates.tf32_first_channels
    is_large = sizes.taps >= rates.tf32_first_taps
    return walks and is_image and is_large and sizes.out_channels >= rates.tf32_first_results


def planes_of(rounding: Rounding) -> int:
    """Planes of fp16 numbers: one product of one, three of two."""
    return 2 if rounding is Rounding.NONE else 1


def forecast(node: Node, graph: Graph, machine: Machine) -> Forecast | None:
    """The times of both at the captured sizes; None where no configuration takes the call."""
    sizes = _with_steps(sizes_of(node, graph), node, graph)
    ranked = ranked_convolutions(sizes, planes_of(rounding_of(sizes, machine)), machine)
    if not ranked:
        return None
    library = _usual_seconds(sizes, machine)
    if is_on_channels_last(node):
        turned = _channels_last_seconds(sizes, machine)
        library = min(library, turned) if _is_product(sizes) else turned
    return Forecast(
        ours=ranked[0][0],
        library=library,
        after=_pass_seconds(node, graph, machine),
    )


def _readers(steps: set[str], graph: Graph) -> Iterator[Node]:
    """Who reads these nodes, in the graph's order; the caller adds some of them on the way."""
    users, places = graph.users(), graph.places()
    found = {reader for name in steps for reader in users[name]}
    queue = [(places[name], name) for name in found]
    heapify(queue)
    while queue:
        _, name = heappop(queue)
        yield graph[name]
        if name in steps:
            new = set(users[name]) - found
            found |= new
            for reader in new:
                heappush(queue, (places[reader], reader))


def _with_steps(sizes: ConvSizes, node: Node, graph: Graph) -> ConvSizes:
    """The sizes with what may be computed where the results are stored."""
    steps, operation, by_place = {node.name}, 0, False
    for reader in _readers(steps, graph):
        if not isinstance(reader.kind, Pointwise | View):
            continue
        if isinstance(reader.kind, Pointwise):
            operation += long_instructions(reader.kind.expr)
            others = (graph[name].type for name in reader.inputs if name not in steps)
            by_place |= any(differs_by_place(it, sizes.spatial) for it in others)
        steps.add(reader.name)
    return replace(sizes, operation=operation, reads_by_place=by_place)


def _pass_seconds(node: Node, graph: Graph, machine: Machine) -> float:
    """The kernel for the steps after the library's, which ours computes where it stores its sums;
    0 where another kernel that is there anyway computes them."""
    steps = {node.name}
    has_steps = False
    for reader in _readers(steps, graph):
        # Ours writes its part of a concatenation where it belongs.
        has_steps |= isinstance(reader.kind, Pointwise | Concat)
        if isinstance(reader.kind, Pointwise | View):
            steps.add(reader.name)
        elif not isinstance(reader.kind, Conv | Opaque | Contract | Concat):
            return 0.0
    moved = 2 * node.tensor.bytes_hint
    return moved / conv_rates(machine).turning_bandwidth if has_steps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions:
    """Who computes each convolution of a graph, by its node."""

    left: Mapping[str, str]
    """Why it is the library's."""
    ours: Mapping[str, Rounding]
    """What ours may round to."""
    by_place: frozenset[str] = frozenset()
    """Those of ours that are products of patches, with channels last."""


def shared_out(graph: Graph, machine: Machine, library: Library) -> Convolutions:
    """The convolutions of a graph, ours and the library's."""
    left: dict[str, str] = {}
    ours: dict[str, Rounding] = {}
    chain = is_chain(graph)
    for node in graph.nodes:
        if isinstance(node.kind, Conv):
            # In a chain a product that was left may be faster as a convolution of one tap; else
            # what the library does as a product it does as a convolution.
            left_before = None if chain else node.kind.why
            why = left_before or why_never(node, graph)
            if why is None and library is Library.WHERE_FASTER:
                why = why_the_library(node, graph, machine, in_chain=chain)
                why = why and (node.kind.why or why)
            if why is None:
                ours[node.name] = rounding_of(sizes_of(node, graph), machine)
            else:
                left[node.name] = why
    return Convolutions(left=MappingProxyType(left), ours=MappingProxyType(ours))


def placed_as_products(
    shared: Convolutions, graph: Graph, machine: Machine, measured: Container[str]
) -> Convolutions:
    """The choice, with all convolutions as products of patches that can be; but for what a card
    has `measured`."""
    found = {
        node.name: rounding_of(sizes_of(node, graph), machine)
        for node in graph.nodes
        if node.name not in measured and why_not_by_place(node, graph, machine) is None
    }
    left = {name: why for name, why in shared.left.items() if name not in found}
    return Convolutions(
        left=MappingProxyType(left),
        ours=MappingProxyType({**shared.ours, **found}),
        by_place=frozenset(found),
    )


def why_not_by_place(node: Node, graph: Graph, machine: Machine) -> str | None:
    """Reason why a node is no convolution that a product of patches computes."""
    if not isinstance(node.kind, Conv):
        return "it is no convolution"
    never = why_never(node, graph)
    if never is not None:
        return never
    if machine.warpgroups is None:
        return "it takes products of warpgroups"
    if len(node.kind.stride) != 2 or node.kind.groups > 1 or node.kind.transposed:
        return "it has other dimensions, groups, or is transposed"
    data, weight = (graph[name].tensor for name in node.inputs[:2])
    is_vector = all(it == ONE for it in (*data.shape[2:], *weight.shape[2:]))
    vector = _VECTOR_BYTES // data.dtype.itemsize
    if not is_vector and any(it.hint % vector for it in weight.shape[:2]):
        return "its channels are no whole vectors"
    sizes = sizes_of(node, graph)
    if not _is_product(sizes) and rounding_of(sizes, machine) is Rounding.NONE:
        return "its patches are multiplied with a TF32 product, and the user's call may not be"
    return None


def with_measured(
    shared: Convolutions, measured: Mapping[str, str | None], graph: Graph, machine: Machine
) -> Convolutions:
    """The choice, where a card has measured some: by node, the reason, or None where ours are."""
    left, ours, by_place = dict(shared.left), dict(shared.ours), set(shared.by_place)
    for name in [*shared.left, *shared.ours]:
        why = measured.get(name, shared.left.get(name))
        if why is not None:
            left[name] = why
            ours.pop(name, None)
            by_place.discard(name)
        elif name not in ours and why_never(graph[name], graph) is None:
            ours[name] = rounding_of(sizes_of(graph[name], graph), machine)
            del left[name]
    return Convolutions(
        left=MappingProxyType(left), ours=MappingProxyType(ours), by_place=frozenset(by_place)
    )


def is_chain(graph: Graph) -> bool:
    """Whether calls of the library may cost the host more than they cost the card."""
    return sum(isinstance(it.kind, Conv | Contract) for it in graph.nodes) >= _CHAIN


def with_ours(graph: Graph, convolutions: Convolutions, machine: Machine) -> Graph:
    """The graph whose nodes say which convolutions are ours; channels-last operands are the
    library's alone.

    Those of one tap gain nothing by them: they follow the others.
    """
    gains = any(
        is_on_channels_last(node) and not _is_product(sizes_of(node, graph))
        for node in graph.nodes
        if node.name not in convolutions.ours
    )

    def told(node: Node) -> Node:
        if not isinstance(node.kind, Conv):
            return node
        if node.name in convolutions.by_place:
            called = as_called(node)
            may_round = convolutions.ours[node.name] is Rounding.MEASURED_SIZES
            least = tf32_elements(sizes_of(node, graph), machine) if may_round else None
            how = ByPlace(rounds_from=least)
            return replace(called, kind=replace(node.kind, channels_last=None, by_place=how))
        if node.name not in convolutions.ours:
            return node if gains else as_called(node)
        kind = replace(node.kind, rounding=convolutions.ours[node.name])
        return as_called(replace(node, kind=kind))

    return replace(graph, nodes=tuple(map(told, graph.nodes)))


def why_the_library(node: Node, graph: Graph, machine: Machine, *, in_chain: bool) -> str | None:
    """Reason for leaving a convolution to the library; None where ours is faster by the model.

    `in_chain`: calls of the library may cost the host more than they cost the card.
    """
    wide = why_wide(node, graph)
    if wide is not None:
        return wide
    found = forecast(node, graph, machine)
    if found is None:
        return "no kernel of ours is fast for its sizes on this card"
    if found.library < machine.library.known_seconds and not in_chain:
        return f"{SMALL} ({found})"
    library = max(found.library, machine.library.cut_seconds) if in_chain else found.library
    if conv_rates(machine).margin * found.ours <= library + found.after:
        return None
    return f"{MAY_BE} ({found})"


def why_never(node: Node, graph: Graph) -> str | None:
    """Reason why a convolution is no kernel of ours on any card."""
    conv = node.kind
    assert isinstance(conv, Conv)
    types = [graph[name].type for name in node.inputs]
    if node.tensor.rank != len(conv.stride) + 2:
        return "it has no batch dimension"
    dtypes = {it.dtype for it in types if isinstance(it, TensorType)} | {node.tensor.dtype}
    if len(dtypes) > 1 or node.tensor.dtype not in (DType.F32, DType.F16, DType.BF16):
        return f"its elements are {', '.join(sorted(it.value for it in dtypes))}"
    if any(not dim.is_static for name in node.inputs[1:2] for dim in graph[name].tensor.shape):
        return "the sizes of its filter are not known"
    return None


def _usual_seconds(sizes: ConvSizes, machine: Machine) -> float:
    """cuDNN at its best on operands as they are."""
    kind = _kind(sizes, machine)
    if sizes.turned and sizes.spatial == 3 and kind in ("deep", "fp32"):
        return _turned_seconds(sizes, machine)
    rates = conv_rates(machine)
    rate = rates.library[kind]
    if kind == "tf32" and _is_product(sizes):
        # No operand is turned.
        moving = _moved(sizes) / rates.channels_last[kind].bandwidth
        return max(sizes.flops / rate.flops, moving) + machine.library.call_seconds
    # In float32 its tiles have 64 output channels.
    padded = ceil(sizes.out_channels / 64) * 64 if kind in ("fp32", "grouped") else 0
    flops = sizes.flops * max(1.0, padded / sizes.out_channels)
    fill = _fill(sizes, machine) if kind == "tf32" else 1.0
    seconds = flops / (fill * rate.flops) + _moved(sizes) / rate.bandwidth
    return seconds + machine.library.call_seconds


def _is_product(sizes: ConvSizes) -> bool:
    """Whether each place of the result has one of the operand, in the same order."""
    return sizes.taps == 1 and all(axis.step == 1 and not axis.padding for axis in sizes.axes)


def _turned_seconds(sizes: ConvSizes, machine: Machine) -> float:
    """cuDNN's data gradients in three dimensions, whose tiles have 32 by 64 channels."""
    rate = conv_rates(machine).library["deep"]
    rows = ceil(sizes.in_channels / _TILE_CHANNELS) * _TILE_CHANNELS
    padded = rows * ceil(sizes.out_channels / 64) * 64
    flops = sizes.flops * padded / (sizes.in_channels * sizes.out_channels)
    return flops / rate.flops + _moved(sizes) / rate.bandwidth + machine.library.call_seconds


def _channels_last_seconds(sizes: ConvSizes, machine: Machine) -> float:
    """cuDNN at its best on an operand that is turned before."""
    rates = conv_rates(machine)
    kind = _kind(sizes, machine)
    if kind == "strided" and sizes.in_channels < _TILE_CHANNELS:
        kind = "odd" if sizes.in_channels % _TF32_VECTOR else "thin"
    found = rates.channels_last.get(kind)
    if found is None:
        return _usual_seconds(sizes, machine)
    turning = 2 * sizes.dtype.itemsize * sizes.input_elements / rates.turning_bandwidth
    tiles = ceil(sizes.in_channels / _TILE_CHANNELS)
    flops = sizes.flops * tiles * _TILE_CHANNELS / sizes.in_channels
    fill = _fill(sizes, machine) if kind == "tf32" else 1.0
    seconds = max(flops / (fill * found.flops), _moved(sizes) / found.bandwidth)
    return turning + seconds + machine.library.call_seconds


def _fill(sizes: ConvSizes, machine: Machine) -> float:
    """Share of its rate that the library reaches with the tiles that fit best, in whole waves."""
    found = 0.0
    for (positions, channels), share in conv_rates(machine).library_tiles.items():
        tiles = ceil(sizes.positions / positions) * ceil(sizes.out_channels / channels)
        slots = ceil(tiles / machine.sm_count) * machine.sm_count * positions * channels
        found = max(found, share * sizes.positions * sizes.out_channels / slots)
    return found


def _moved(sizes: ConvSizes) -> int:
    return sizes.dtype.itemsize * (sizes.input_elements + sizes.output_elements)


def _kind(sizes: ConvSizes, machine: Machine) -> str:
    """The library's kernels of this kind: a key of its rates."""
    if sizes.dtype is not DType.F32:
        return "short_few" if sizes.in_channels % _SHORT_VECTOR else "short"
    if sizes.groups > 1:
        return "grouped"
    # A small call may be float32, and then it is slower than this.
    if not _takes_tf32(sizes, machine):
        return "fp32"
    if sizes.transposed:
        return "strided"
    return "deep" if sizes.spatial == 3 else "tf32"
