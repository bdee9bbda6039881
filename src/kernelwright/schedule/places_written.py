"""Places of arguments and buffers that launches write: results without memory of their own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kernelwright.ir.calls import AtenCall, Ref, rename, rename_call
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Slice, Write
from kernelwright.ir.library_calls import COPY_INTO
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import (
    Einsum,
    Launch,
    Reinterpret,
    Room,
    Step,
    Take,
    TorchCall,
    Within,
)
from kernelwright.schedule.families import family_of


def with_places_written(graph: Graph, steps: Sequence[Step]) -> tuple[Graph, list[Step]]:
    """The steps where writes in place are results with a room, and what they write has one name."""
    writes = {
        node.name: node
        for node in graph.nodes
        if isinstance(node.kind, Write) and node.kind.path is not None
    }
    if not writes:
        return graph, list(steps)
    roots: dict[str, str] = {}
    for name, node in writes.items():
        whole = node.inputs[0]
        roots[name] = roots.get(whole, whole)
    names = {node.name for node in graph.nodes}
    rooms = _rooms(graph, steps, writes, roots)
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Launch):
            found += [rooms[name] for name in step.results if name in rooms]
        if step.result in writes:
            found += _copied(writes[step.result], roots, rooms, graph, names)
        else:
            found.append(_renamed(step, roots))
    return replace(graph, returns=rename(graph.returns, roots)), found


def _rooms(
    graph: Graph, steps: Sequence[Step], writes: Mapping[str, Node], roots: Mapping[str, str]
) -> dict[str, Room]:
    """Where the launches write that make what is written and write anywhere."""
    users = graph.users()
    parts = {node.inputs[1]: node for node in writes.values()}
    found: dict[str, Room] = {}
    for step in steps:
        if not isinstance(step, Launch) or not family_of(step.kernel).writes_anywhere(step.kernel):
            continue
        for name in step.results:
            if name in parts and len(users[name]) == 1 and name not in graph.results:
                within = _within(parts[name], roots)
                found[name] = Room(result=name, type=graph[name].tensor, within=within)
    return found


def _within(write: Node, roots: Mapping[str, str]) -> Within:
    kind = write.kind
    assert isinstance(kind, Write)
    return Within(whole=roots[write.name], dim=kind.dim, start=kind.start, stop=kind.stop)


def _copied(
    write: Node,
    roots: Mapping[str, str],
    rooms: Mapping[str, Room],
    graph: Graph,
    names: set[str],
) -> Iterator[Step]:
    """PyTorch's copy to the places, where no launch has written to them."""
    part, kind = write.inputs[1], write.kind
    assert isinstance(kind, Write) and kind.path is not None
    if part in rooms:
        return
    places = fresh_name(f"{write.name}_places", names)
    yield Reinterpret(
        result=places,
        input=roots[write.name],
        map=Slice(kind.dim, kind.start, kind.stop, 1),
        type=graph[part].tensor,
    )
    yield TorchCall(
        result=fresh_name(f"{write.name}_copied", names),
        call=AtenCall(COPY_INTO, (Ref(places), Ref(part))),
        type=graph[part].type,
        why="what makes it writes to memory of its own",
        mutates=(kind.path,),
        source=write.source,
    )


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """The step reading other names."""
    match step:
        case Launch(inputs=inputs):
            return replace(step, inputs=tuple(names.get(it, it) for it in inputs))
        case Reinterpret(input=source) | Take(input=source):
            return replace(step, input=names.get(source, source))
        case Einsum(inputs=(first, second)):
            return replace(step, inputs=(names.get(first, first), names.get(second, second)))
        case TorchCall(call=call, channels_last=planned):
            if planned is not None:
                planned = replace(planned, given=names.get(planned.given, planned.given))
            return replace(step, call=rename_call(call, names), channels_last=planned)
        case Room():
            return step
