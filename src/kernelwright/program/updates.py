"""Buffers that a kernel writes where they are, so that no copy has to follow.

That is right where nothing reads the buffer afterwards and each of its elements is read by the
thread alone that writes it, before it does.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.ir.graph import Graph, Update
from kernelwright.ir.kinds import Parameter, Reshape, Squeeze, Unsqueeze
from kernelwright.ir.plan import Launch, Plan, Reinterpret, reads
from kernelwright.ir.types import TensorType, extents
from kernelwright.schedule.families import family_of


def in_place(plan: Plan) -> Mapping[str, Update]:
    """The updates that launches can write themselves, by the result that takes the buffer."""
    names = _names(plan)
    paths = [update.path for update in plan.graph.updates]
    found = ((names.source(update), update) for update in plan.graph.updates)
    return {
        name: update
        for name, update in found
        if paths.count(update.path) == 1 and _may_write(plan, names, name, update)
    }


def views_of(plan: Plan, written: Mapping[str, Update]) -> frozenset[str]:
    """Views that only the updates were to read which launches write themselves."""
    found: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Reinterpret) and (step.input in written or step.input in found):
            found.add(step.result)
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What the names of a plan stand for."""

    roots: Mapping[str, str]
    """What a view is one of, through all of them."""
    sources: Mapping[str, str]
    """What a view is the same as, but for dimensions of size 1."""
    made: Mapping[str, int]
    """The launch of each of its results."""
    read: Mapping[str, list[int]]
    """Steps that read something or a view of it, by its root; views are no steps of these."""
    owners: Mapping[str, list[str]]
    """Nodes of each buffer."""
    returned: Mapping[str, list[str]]
    """Results of the graph by their root."""

    def source(self, update: Update) -> str:
        name = update.value
        while name in self.sources:
            name = self.sources[name]
        return name


def _names(plan: Plan) -> _Names:
    graph = plan.graph
    roots: dict[str, str] = {}
    sources: dict[str, str] = {}
    made: dict[str, int] = {}
    read: dict[str, list[int]] = defaultdict(list)
    for at, step in enumerate(plan.steps):
        match step:
            case Reinterpret(result=result, input=source, map=how):
                roots[result] = roots.get(source, source)
                is_same = extents(graph[source].type) == extents(step.type)
                if is_same and isinstance(how, Reshape | Squeeze | Unsqueeze):
                    sources[result] = source
                continue
            case Launch(results=results):
                made.update(dict.fromkeys(results, at))
        for name in reads(step):
            read[roots.get(name, name)].append(at)
    owners: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if isinstance(node.kind, Parameter):
            owners[node.kind.path].append(node.name)
    returned: dict[str, list[str]] = defaultdict(list)
    for name in graph.results:
        returned[roots.get(name, name)].append(name)
    return _Names(
        roots=roots, sources=sources, made=made, read=read, owners=owners, returned=returned
    )


def _may_write(plan: Plan, names: _Names, name: str, update: Update) -> bool:
    """Whether the launch of `name`, which the update takes, can have the buffer for it."""
    if name not in names.made or name in names.read or names.returned[name] != [update.value]:
        return False
    at = names.made[name]
    launch = plan.steps[at]
    assert isinstance(launch, Launch)
    place = launch.results.index(name)
    output = launch.kernel.outputs[place]
    owners = names.owners[update.path]
    if update.is_assigned and not owners:
        return False  # Nobody has looked where it lies.
    for owner in owners:
        if (
            not all(_has_read(plan, reader, at) for reader in names.read.get(owner, ()))
            or names.returned.get(owner)
            or not _is_like(plan.graph, owner, output)
        ):
            return False
    own = {i for i, it in enumerate(launch.inputs) if names.roots.get(it, it) in owners}
    if any(extents(launch.kernel.inputs[i]) != extents(output) for i in own):
        return False
    return family_of(launch.kernel).alone(launch.kernel, place, own)


def _has_read(plan: Plan, reader: int, at: int) -> bool:
    """Whether a step is done with the buffer when that at `at` is: what a call gives may be it."""
    return reader <= at and isinstance(plan.steps[reader], Launch)


def _is_like(graph: Graph, owner: str, output: TensorType) -> bool:
    """Whether a buffer has the type of a result, but for dimensions of size 1."""
    kind = graph[owner].type
    is_same = isinstance(kind, TensorType) and kind.dtype is output.dtype
    return is_same and extents(kind) == extents(output)
