"""Bytes that a call of a program has allocated while each of its parts runs, at captured sizes.

Neither workspaces of kernels and of the library are among them, nor the rounding of PyTorch's
allocator.
"""

from collections.abc import Iterator, Mapping, Sequence, Set

from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Einsum, Launch, Reinterpret, Room, Take, TorchCall, Within
from kernelwright.ir.program import Part, Program, Segment, part_reads, types_of
from kernelwright.ir.types import TensorType, TupleType
from kernelwright.program.arena import arena_bytes


def peak_bytes(program: Program) -> int:
    """The most bytes that a call has allocated at a time."""
    return max(bytes_during(program.parts, program.plan.graph, program.in_place.keys()), default=0)


def bytes_during(parts: Sequence[Part], graph: Graph, in_place: Set[str]) -> list[int]:
    """Bytes that are allocated while each part runs: results, arenas, what library calls give.

    `in_place` are results whose memory is a buffer's. A value lives until its last reader has run.
    """
    roots = roots_of(parts)
    dying = _dying(parts, roots, graph)
    alive: dict[str, int] = {}
    has_memory = {*in_place, *roots}
    found: list[int] = []
    for part, ending in zip(parts, dying, strict=True):
        for name, size in _given(part, graph):
            if name not in has_memory:
                has_memory.add(name)
                alive[name] = size
        arena = arena_bytes(part) if isinstance(part, Segment) else 0
        found.append(sum(alive.values()) + arena)
        for name in ending:
            alive.pop(name, None)
    return found


def _given(part: Part, graph: Graph) -> Iterator[tuple[str, int]]:
    """Values that are there after a part, with their bytes."""
    match part:
        case Segment(results=results):
            types = types_of(part)
            yield from ((name, types[name].bytes_hint) for name in results)
        case Launch(results=results, kernel=kernel):
            for name, kind in zip(results, kernel.outputs, strict=True):
                yield name, kind.bytes_hint
        case Room(result=result, type=kind) | Reinterpret(result=result, type=kind):
            yield result, kind.bytes_hint
        case TorchCall() | Einsum() | Take():
            given = graph[part.result].type
            items = given.items if isinstance(given, TupleType) else (given,)
            yield part.result, sum(it.bytes_hint for it in items if isinstance(it, TensorType))


def roots_of(parts: Sequence[Part]) -> Mapping[str, str]:
    """What each view and each part of a value is one of, through all of them."""
    roots: dict[str, str] = {}
    for part in parts:
        match part:
            case Reinterpret(result=result, input=source) | Take(result=result, input=source):
                roots[result] = roots.get(source, source)
            case Room(result=result, within=Within(whole=whole)):
                roots[result] = roots.get(whole, whole)
    return roots


def _dying(parts: Sequence[Part], roots: Mapping[str, str], graph: Graph) -> list[list[str]]:
    """Values of which nothing is read after each part."""
    last: dict[str, int] = {}
    for at, part in enumerate(parts):
        for name in (*part_reads(part), *(name for name, _ in _given(part, graph))):
            last[roots.get(name, name)] = at
    kept = {*graph.results, *(update.value for update in graph.updates)}
    kept |= {roots[name] for name in kept & roots.keys()}
    found: list[list[str]] = [[] for _ in parts]
    for name in last.keys() - kept:
        found[last[name]].append(name)
    return found
