"""Copies of what a call begins with, as filters whose channels have to lie last: in one launch.

Each alone takes longer to launch than to copy, and a network of convolutions has dozens of them.
"""

from collections.abc import Iterator, Sequence

from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Input, Parameter
from kernelwright.ir.plan import Launch, Reinterpret, Step, reads
from kernelwright.ir.types import DType
from kernelwright.schedule.families.copies import MOST_COPIES, copied_together, is_copy


def with_copies_together(graph: Graph, steps: Sequence[Step]) -> list[Step]:
    """The steps with one launch for copies of parameters and arguments, where the first of them
    was."""
    ordered = graph.readers_of_mutable()
    known = _known_at_the_start(graph, steps, ordered)
    by_type: dict[DType, list[Launch]] = {}
    for step in steps:
        if not isinstance(step, Launch) or not is_copy(step.kernel) or step.result in ordered:
            continue
        if known.keys() >= set(step.inputs):
            by_type.setdefault(step.kernel.output.dtype, []).append(step)
    merged: dict[str, Launch | None] = {}
    for alike in by_type.values():
        for at in range(0, len(alike), MOST_COPIES):
            some = alike[at : at + MOST_COPIES]
            if len(some) > 1:
                merged |= dict.fromkeys(it.result for it in some)
                merged[some[0].result] = copied_together(some)
    return list(_with_views_first(steps, merged, known))


def _known_at_the_start(
    graph: Graph, steps: Sequence[Step], ordered: set[str]
) -> dict[str, Reinterpret | None]:
    """Parameters, arguments, and views of them with their step, but for those in `ordered`."""
    given = (node for node in graph.nodes if isinstance(node.kind, Input | Parameter))
    known: dict[str, Reinterpret | None] = {node.name: None for node in given}
    for step in steps:
        if isinstance(step, Reinterpret) and step.input in known and step.result not in ordered:
            known[step.result] = step
    return known


def _with_views_first(
    steps: Sequence[Step],
    merged: dict[str, Launch | None],
    known: dict[str, Reinterpret | None],
) -> Iterator[Step]:
    """The steps with the merged launches; views that these read come before them."""
    seen: set[str] = set()

    def views_of(name: str) -> Iterator[Step]:
        step = known.get(name)
        if step is not None and name not in seen:
            yield from views_of(step.input)
            seen.add(name)
            yield step

    for step in steps:
        found = merged.get(step.result, step)
        if found is None or found.result in seen:
            continue
        if found is not step:
            for name in reads(found):
                yield from views_of(name)
        seen.add(found.result)
        yield found
