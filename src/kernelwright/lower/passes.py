"""The passes in the order in which they run."""

from dataclasses import replace

from kernelwright.ir.graph import Graph
from kernelwright.lower.attention import with_attention
from kernelwright.lower.channel_groups import with_groups, without_groups
from kernelwright.lower.channels_last import with_channels_last
from kernelwright.lower.convolution_steps import with_whole_steps
from kernelwright.lower.lowered import Lowered, Pass
from kernelwright.lower.rematerialisation import with_cheap_copies
from kernelwright.lower.split_reductions import with_stages
from kernelwright.lower.turned_operands import with_dense_operands
from kernelwright.lower.written_in_place import with_writes_in_place
from kernelwright.machine import Machine


def lower(
    graph: Graph,
    machine: Machine,
    channels_last: frozenset[str],
    whole: frozenset[str] = frozenset(),
) -> Lowered:
    """A graph after all passes.

    `channels_last`: the convolutions on such operands; `whole`: steps on convolutions of ours that
    are on whole channels already.
    """
    lowered = Lowered(graph=graph, channels_last=channels_last, whole=whole)
    for step in PASSES:
        after = step.run(lowered, machine)
        if after.graph != lowered.graph:
            after = replace(after, changed=(*lowered.changed, step.name))
        lowered = after
    return lowered


def _in_place(lowered: Lowered, machine: Machine) -> Lowered:
    return replace(lowered, graph=with_writes_in_place(lowered.graph))


def _attention(lowered: Lowered, machine: Machine) -> Lowered:
    return replace(lowered, graph=with_attention(lowered.graph, machine))


def _on_convolutions(lowered: Lowered, machine: Machine) -> Lowered:
    found = with_whole_steps(lowered.graph)
    return replace(lowered, graph=found.graph, whole=lowered.whole | found.steps)


def _rematerialised(lowered: Lowered, machine: Machine) -> Lowered:
    return replace(lowered, graph=with_cheap_copies(lowered.graph))


def _on_channels_last(lowered: Lowered, machine: Machine) -> Lowered:
    return with_channels_last(lowered)


def _split(lowered: Lowered, machine: Machine) -> Lowered:
    return replace(lowered, graph=with_stages(lowered.graph, machine))


def _on_groups(lowered: Lowered, machine: Machine) -> Lowered:
    return replace(lowered, graph=with_groups(lowered.graph, lowered.turning | lowered.whole))


def _on_whole_channels(lowered: Lowered, machine: Machine) -> Lowered:
    found = without_groups(lowered.graph, lowered.turning | lowered.whole)
    return replace(lowered, graph=found.graph, small=lowered.small | found.small)


PASSES: tuple[Pass, ...] = (
    Pass(
        name="writes in place",
        what="Of an argument or buffer that a call changes in some places these alone are written.",
        run=_in_place,
    ),
    Pass(
        name="attention",
        what="A softmax between two products is one node, and one kernel.",
        run=_attention,
    ),
    Pass(
        name="steps on convolutions",
        what="A step before a norm of groups is computed where a convolution of ours is stored.",
        run=_on_convolutions,
    ),
    Pass(
        name="rematerialisation",
        what="A cheap step with several readers is computed by each of them, and never written.",
        run=_rematerialised,
    ),
    Pass(
        name="channels-last operands",
        what="Convolutions read and write channels-last memory where their neighbours pay for it.",
        run=_on_channels_last,
    ),
    Pass(
        name="dense operands",
        what="An operand that lies turned in memory is copied for kernels of rows and of windows.",
        run=with_dense_operands,
    ),
    Pass(
        name="split reductions",
        what="A reduction whose operands differ along a row is made in stages, by its parts first.",
        run=_split,
    ),
    Pass(
        name="steps on channel groups",
        what="A step on what a call returns is computed on groups where all its readers are.",
        run=_on_groups,
    ),
    Pass(
        name="steps on whole channels",
        what="A step on groups of channels is computed on whole channels where it is read so.",
        run=_on_whole_channels,
    ),
)
"""Each pass sees what the ones before it decided."""
