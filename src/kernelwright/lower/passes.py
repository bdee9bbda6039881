"""The passes in the order in which they run."""

from collections.abc import Callable

from kernelwright.ir.graph import Graph
from kernelwright.lower.attention import with_attention
from kernelwright.lower.channel_groups import with_groups, without_groups
from kernelwright.lower.channels_last import with_channels_last
from kernelwright.lower.convolution_steps import with_whole_steps
from kernelwright.lower.copied_reshapes import with_copied_reshapes
from kernelwright.lower.dense_operands import with_dense_operands
from kernelwright.lower.layouts import with_layouts
from kernelwright.lower.lowered import Lowered, Pass
from kernelwright.lower.rematerialisation import with_cheap_copies
from kernelwright.lower.rolls import with_gathered_rolls
from kernelwright.lower.split_reductions import with_stages
from kernelwright.lower.turned_gathers import with_turned_gathers
from kernelwright.lower.written_in_place import with_writes_in_place
from kernelwright.machine import Machine


def lower(graph: Graph, machine: Machine) -> Lowered:
    """A graph after all passes, whose types have layouts."""
    graph = with_layouts(graph)
    changed: list[str] = []
    for step in PASSES:
        after = step.run(graph, machine)
        if after != graph:
            graph = with_layouts(after)
            changed.append(step.name)
    return Lowered(graph=graph, changed=tuple(changed))


def _on_any(run: Callable[[Graph], Graph]) -> Callable[[Graph, Machine], Graph]:
    """A pass that is the same for every machine."""
    return lambda graph, machine: run(graph)


PASSES: tuple[Pass, ...] = (
    Pass(
        name="writes in place",
        what="Where a call changes part of an argument or buffer, only that part is written.",
        run=_on_any(with_writes_in_place),
    ),
    Pass(
        name="turned gathers",
        what="A small gather whose result is read by columns is one of columns.",
        run=with_turned_gathers,
    ),
    Pass(
        name="attention",
        what="A softmax between two products is one node, and one kernel.",
        run=with_attention,
    ),
    Pass(
        name="rolls",
        what="A roll and the views around it are one gather, of an index that is computed.",
        run=_on_any(with_gathered_rolls),
    ),
    Pass(
        name="steps on convolutions",
        what="A step before a group norm is computed where our convolution stores its result.",
        run=_on_any(with_whole_steps),
    ),
    Pass(
        name="rematerialisation",
        what="A cheap step with several readers is computed again by each, and not written.",
        run=_on_any(with_cheap_copies),
    ),
    Pass(
        name="channels-last operands",
        what="A convolution uses channels-last memory where it gains more than relayouts cost.",
        run=_on_any(with_channels_last),
    ),
    Pass(
        name="dense operands",
        what="A transposed operand of a row or pooling kernel is copied to row-major first.",
        run=with_dense_operands,
    ),
    Pass(
        name="copied reshapes",
        what="A reshape that has to copy is a kernel's copy, and a view of it.",
        run=with_copied_reshapes,
    ),
    Pass(
        name="split reductions",
        what="A reduction over several dimensions is done in stages, some dimensions first.",
        run=with_stages,
    ),
    Pass(
        name="steps on channel groups",
        what="A step on channels is computed on channel groups where all its readers use groups.",
        run=_on_any(with_groups),
    ),
    Pass(
        name="steps on whole channels",
        what="A step on channel groups is computed on whole channels where its readers use them.",
        run=_on_any(without_groups),
    ),
)
"""Each pass sees what the ones before it decided."""
