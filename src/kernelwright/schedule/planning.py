"""Rewrites and schedule together: what is left to PyTorch is called as the user called it.

Only a rewritten graph shows which products are ours. For the others the captured graph takes the
user's calls back, whole, and is rewritten without them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from kernelwright.collecting import uncollected
from kernelwright.ir.calls import AtenCall, Ref, rename_call
from kernelwright.ir.editing import Editor
from kernelwright.ir.graph import Graph, Node, UserCall
from kernelwright.ir.kinds import Contract, Conv, Opaque, Pointwise
from kernelwright.ir.library_calls import LINEAR
from kernelwright.ir.plan import Plan
from kernelwright.ir.spec import check
from kernelwright.ir.types import DType
from kernelwright.lower import (
    LOOPS,
    PASSES,
    Decision,
    faster_on_channels_last,
    on_channels_last,
    with_layers,
    with_loops,
)
from kernelwright.machine import Machine
from kernelwright.rewrite import Rewritten, rewrite
from kernelwright.schedule.column_moments import having_moments
from kernelwright.schedule.conv_or_library import (
    Convolutions,
    placed_as_products,
    shared_out,
    why_not_by_place,
    with_measured,
)
from kernelwright.schedule.families.recurrent import RECURRENT, loop_is_slower
from kernelwright.schedule.fusion import lowered_with, schedule_lowered
from kernelwright.schedule.joined import joined_in_place
from kernelwright.schedule.legality import Library
from kernelwright.schedule.one_tap import faster_as_convolutions, one_tap_products
from kernelwright.schedule.paired import in_pairs
from kernelwright.schedule.together import computed_together
from kernelwright.schedule.whole_plans import faster_as_wholes, plan_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What depends on the sizes and not on the module: another plan of it can have the same."""

    left: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """Why calls of products are left to PyTorch, by the node of their result as captured; None: the
    call of a convolution that is one again, whoever computes it."""
    channels_last: frozenset[str] | None = None
    """Convolutions on operands of this memory format, by their node as rewritten; None: not chosen
    yet, as below."""
    convolutions: Convolutions | None = None
    """Who computes which, likewise."""
    in_place: frozenset[str] | None = None
    """Tensors whose parts are written where they belong, likewise."""
    together: frozenset[str] | None = None
    """Launches of several products of one left factor, by their first results, likewise."""
    pairs: frozenset[str] | None = None
    """Rows that are written as the pairs that a product reads, likewise."""
    moments: frozenset[str] | None = None
    """Norms that begin with moments of the kernels before, by their first results, likewise."""
    loops: bool | None = None
    """Whether loops are found again, as layers or as kernels that carry a value, likewise."""
    by_place: bool | None = None
    """Whether convolutions are products of patches with channels last, likewise."""
    measured: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """What a card has said of calls: why one is the library's, or None where ours is faster.
    Products by the node of their result as captured, others by their node as rewritten."""


_LEAST_BY_PLACE = 4
"""Convolutions of a graph from which on another order of memory is tried."""

OPEN = Choices()
"""Everything is decided by what is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and the graph that it was made for."""

    rewritten: Rewritten
    plan: Plan
    choices: Choices
    lowered: tuple[Decision, ...]
    """Passes that changed the graph between rewriting and scheduling."""


@uncollected()
def plan_graph(
    captured: Graph,
    machine: Machine,
    library: Library = Library.WHERE_FASTER,
    choices: Choices = OPEN,
) -> Planned:
    """Rewrite and schedule a captured graph.

    What is left to PyTorch in `choices`, as another plan of the same module has it, is in any case.
    """
    looped = _with_loops_found(captured, machine, library, choices)
    choices = replace(choices, loops=looped is not captured)
    made = _rewrites(looped, choices.measured)
    usual = _planned(made, machine, library, replace(choices, by_place=bool(choices.by_place)))
    if choices.by_place is not None or library is Library.NEVER:
        return usual
    if not _may_lie_by_place(usual, machine):
        return usual
    placed = _planned(made, machine, library, replace(choices, by_place=True))
    return min(usual, placed, key=lambda it: _seconds(it, machine))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrites:
    """A captured graph with some calls as the user made them, rewritten; once for the same calls,
    as rewriting is half of planning."""

    captured: Graph
    made: Callable[[frozenset[tuple[str, str | None]]], Rewritten]

    def without(self, left: Mapping[str, str | None]) -> Rewritten:
        """Without what these calls consist of: `Choices.left`."""
        return self.made(frozenset(left.items()))


def _rewrites(captured: Graph, measured: Mapping[str, str | None]) -> _Rewrites:
    @cache
    def made(left: frozenset[tuple[str, str | None]]) -> Rewritten:
        return rewrite(_as_called(captured, dict(left), measured))

    return _Rewrites(captured=captured, made=made)


def _planned(made: _Rewrites, machine: Machine, library: Library, choices: Choices) -> Planned:
    """The plan of a graph whose loops are found."""
    measured = choices.measured
    left = {**choices.left, **{name: why for name, why in measured.items() if why is not None}}
    if choices.convolutions is None and not choices.by_place:
        left = _convolutions_of_one_tap(made, left, machine) | left
    elif choices.convolutions is None:
        left = _calls_of_one_tap(made.captured) | left
    while True:
        rewritten = made.without(left)
        formats = choices.channels_last
        if formats is None:
            formats = faster_on_channels_last(rewritten.graph, machine)
        graph = on_channels_last(rewritten.graph, formats)
        convolutions = choices.convolutions
        if convolutions is None:
            convolutions = _shared_out(graph, machine, library, choices)
        lowered = lowered_with(convolutions, graph, machine)
        plan = schedule_lowered(
            lowered.graph,
            machine,
            library,
            choices.in_place,
            convolutions,
            measured,
            choices.together,
            choices.pairs,
            choices.moments,
        )
        found = _products_left(plan)
        if not found:
            chosen = replace(
                choices,
                left=MappingProxyType(left),
                channels_last=formats,
                convolutions=convolutions,
                in_place=joined_in_place(plan),
                together=computed_together(plan),
                pairs=in_pairs(plan),
                moments=having_moments(plan),
            )
            changed = tuple(it for it in PASSES if it.name in lowered.changed)
            passes = (LOOPS, *changed) if choices.loops else changed
            return Planned(rewritten=rewritten, plan=plan, choices=chosen, lowered=passes)
        left |= found


def _may_lie_by_place(planned: Planned, machine: Machine) -> bool:
    """Whether convolutions may be products with channels last, and enough to make up for turning
    what comes first and last."""
    graph = planned.rewritten.graph
    convolutions = [node for node in graph.nodes if isinstance(node.kind, Conv)]
    fitting = [it for it in convolutions if why_not_by_place(it, graph, machine) is None]
    return len(fitting) >= _LEAST_BY_PLACE


def _seconds(planned: Planned, machine: Machine) -> float:
    return plan_seconds(planned.plan, planned.rewritten.graph, machine)


def _convolutions_of_one_tap(
    made: _Rewrites, left: Mapping[str, str | None], machine: Machine
) -> dict[str, str | None]:
    """Calls that are convolutions again: faster so than as the product of their channels."""
    captured = made.captured
    calls = (node.part_of for node in captured.nodes if node.part_of is not None)
    has_convolutions = any(isinstance(it.kind, Conv) for it in calls)
    if not has_convolutions or machine.convolutions is None or "tf32" not in machine.flops:
        return {}
    graph = made.without(left).graph
    products = one_tap_products(graph)
    if not products:
        return {}
    convolved = made.without({**left, **dict.fromkeys(products)}).graph
    names = {node.part_of.result: node.name for node in captured.nodes if node.part_of is not None}
    found = faster_as_convolutions(products, graph, convolved, names, machine)
    return dict.fromkeys(found)


def _calls_of_one_tap(captured: Graph) -> dict[str, str | None]:
    """Calls of convolutions that are products as captured: by place they are convolutions."""
    return {
        node.part_of.result: None
        for node in captured.nodes
        if node.part_of is not None
        and isinstance(node.part_of.kind, Conv)
        and isinstance(node.kind, Contract)
    }


def _shared_out(graph: Graph, machine: Machine, library: Library, choices: Choices) -> Convolutions:
    """Who computes which convolution: each alone first, then by what whole plans take."""
    measured = choices.measured

    def planned(convolutions: Convolutions) -> Plan:
        lowered = lowered_with(convolutions, graph, machine)
        return schedule_lowered(lowered.graph, machine, library, None, convolutions)

    found = shared_out(graph, machine, library)
    if choices.by_place:
        found = placed_as_products(found, graph, machine, measured)
    elif library is not Library.NEVER and machine.convolutions is not None:
        found = faster_as_wholes(found, graph, machine, planned)
    return with_measured(found, measured, graph, machine)


def _with_loops_found(
    captured: Graph, machine: Machine, library: Library, choices: Choices
) -> Graph:
    """The captured graph with layers for loops of cells where kernels take these, and with loops
    that carry a value."""

    always = choices.loops or library is Library.NEVER

    def takes(node: Node, graph: Graph) -> bool:
        why_not = RECURRENT.why_not(node, graph, machine, Library.NEVER)
        return why_not is None and (always or loop_is_slower(node, graph, machine))

    return captured if choices.loops is False else with_loops(with_layers(captured, takes))


def _products_left(plan: Plan) -> dict[str, str]:
    """Calls whose one contraction no kernel does, with the reason."""
    found: dict[str, str] = {}
    for step in plan.left_to_pytorch:
        node = plan.graph[step.result]
        if isinstance(node.kind, Contract) and node.part_of is not None:
            found[node.part_of.result] = step.why
    return found


def _as_called(
    graph: Graph, left: Mapping[str, str | None], measured: Mapping[str, str | None]
) -> Graph:
    """The captured graph with the calls of these results as the user made them.

    What a card has measured was the whole call.
    """
    editor = Editor(graph)
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.part_of is not None and node.part_of.result in left:
            why, call = left[node.part_of.result], rename_call(node.part_of.call, names)
            bias = _bias_of_pointwise(editor, node, node.part_of, call)
            if bias is not None and why is not None and node.part_of.result not in measured:
                _leave_product(editor, node, node.part_of.result, call.without(bias), why)
                continue
            _take_back(editor, node, node.part_of, call, why)
            names[node.part_of.result] = node.name
    editor.drop_unread()
    return check(editor.graph())


def _bias_of_pointwise(editor: Editor, product: Node, user: UserCall, call: AtenCall) -> str | None:
    """The bias of a linear call whose sum a kernel computes with what comes next.

    There it costs nothing; cuBLAS takes longer for a product of floats with a bias than without
    (docs/measured/gemm.md).
    """
    names = [arg.name for arg in call.args if isinstance(arg, Ref)]
    readers = [editor.node(name) for name in editor.readers(user.result)]
    fits = (
        call.target == LINEAR
        and len(names) == len(call.args) == len(set(names)) == 3
        and not call.kwargs
        and product.tensor.dtype is DType.F32
        and not editor.is_shown(user.result)
        and len(readers) == 1
        and isinstance(readers[0].kind, Pointwise)
    )
    return names[2] if fits else None


def _leave_product(editor: Editor, product: Node, result: str, call: AtenCall, why: str) -> None:
    """Put the call of a product alone; the sum with the bias, `result`, stays as it is."""
    kind = Opaque(why=why)
    left = replace(product, kind=kind, inputs=call.refs, origin=call, part_of=None)
    editor.replace(product, (left,))
    node = editor.node(result)
    editor.replace(node, (replace(node, operators=("add",)),))


def _take_back(
    editor: Editor, product: Node, user: UserCall, call: AtenCall, why: str | None
) -> None:
    """Put one call, under the name of its product, for all the nodes of the user's call."""
    result = editor.node(user.result)
    whole = replace(
        result,
        name=product.name,
        kind=replace(user.kind, why=why),
        inputs=call.operands if isinstance(user.kind, Conv) else call.refs,
        origin=call,
        part_of=None,
    )
    if result.name != product.name:
        editor.take_away(product.name)
    editor.replace(result, (whole,))
