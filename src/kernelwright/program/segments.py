"""A plan cut into segments: launches between two calls left to PyTorch are one native call."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from kernelwright.ir.kinds import (
    Constant,
    Expand,
    Parameter,
    Reshape,
    Select,
    Slice,
    ViewMap,
)
from kernelwright.ir.plan import Launch, Plan, Reinterpret, Room, Step, reads, sizes_used
from kernelwright.ir.program import NativeStep, Part, Program, Segment
from kernelwright.ir.types import Dim, TensorType
from kernelwright.program.arena import slots_of
from kernelwright.program.memory import MAX_RANK, Memory, memory_of_view
from kernelwright.program.updates import in_place, views_of

_FEWEST_LAUNCHES = 2
"""One launch is a native call already."""
_MANY_READ = 4
"""Tensors of the module that launches read from which on each launch that reads any is in a
segment, whose parameters are known from an earlier call and packed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Steps in a row, and the parts of the program that they are."""

    steps: tuple[Step, ...]
    read_later: frozenset[str]
    """What is read of them, and of what was before them, when they have run."""
    parts: tuple[Part, ...]


class Frame:
    """What the pieces of one plan have in common."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.in_place = in_place(plan)
        dropped = views_of(plan, self.in_place)
        self._steps = [step for step in plan.steps if step.result not in dropped]
        rooms = {step.result for step in self._steps if isinstance(step, Room)}
        self._placed = rooms.union(self.in_place)
        self._kept = _same_in_every_call(plan)
        launches = (step for step in self._steps if isinstance(step, Launch))
        read = self._kept.intersection(name for step in launches for name in step.inputs)
        self._fewest = 1 if len(read) >= _MANY_READ else _FEWEST_LAUNCHES

    def pieces(self) -> list[Piece]:
        """All steps in as few pieces as can be, in order."""
        updated = {update.path for update in self.in_place.values()}
        copied = {it.value for it in self.plan.graph.updates if it.path not in updated}
        read_later = frozenset({*self.plan.graph.results, *copied})
        found: list[Piece] = []
        for run in reversed(_runs(self._steps, self._placed)):
            found.insert(0, self._piece(run.steps, read_later))
            read_later = _read_before(found[0])
        return found

    def cut(self, piece: Piece, before: int) -> tuple[Piece, Piece]:
        """A piece as two, the second of which begins with the step at `before`."""
        second = self._piece(piece.steps[before:], piece.read_later)
        return self._piece(piece.steps[:before], _read_before(second)), second

    def program(self, pieces: Sequence[Piece]) -> Program:
        """The program of these pieces."""
        parts = [part for piece in pieces for part in piece.parts]
        return Program(plan=self.plan, parts=_named(self.plan, parts), in_place=self.in_place)

    def _piece(self, steps: Sequence[Step], read_later: frozenset[str]) -> Piece:
        launches = [step for step in steps if isinstance(step, Launch)]
        is_segment = len(launches) >= _FEWEST_LAUNCHES or (
            len(launches) >= self._fewest and _reads_any(launches[0], self._kept)
        )
        parts = _parts(steps, read_later, self._placed, self._kept) if is_segment else steps
        return Piece(steps=tuple(steps), read_later=read_later, parts=tuple(parts))


def _read_before(piece: Piece) -> frozenset[str]:
    """What is read when everything before a piece has run, and what is written into: memory for a
    result may be there before."""
    written = (step.results for step in piece.steps if isinstance(step, Launch))
    return piece.read_later.union(*map(reads, piece.steps), *written)


@dataclass(slots=True)
class _Run:
    """Steps in a row that can be one native call, or a step that cannot be part of any."""

    placed: Set[str]
    """Results of launches that have memory before: parts of another value, and buffers."""
    steps: list[Step] = field(default_factory=list)
    memory: dict[str, Memory] = field(default_factory=dict)
    """That of the values that its steps make."""

    def takes(self, step: Step) -> bool:
        """Whether it can have this step, too."""
        match step:
            case Launch() | Room():
                return True
            case Reinterpret(input=source, map=how, type=kind):
                memory = self.memory.get(source)
                if memory is None:  # A view of what was there before.
                    return True
                return memory_of_view(how, memory, kind) is not None and kind.rank <= MAX_RANK
        return False

    def add(self, step: Step) -> None:
        """Have a step."""
        self.steps.append(step)
        for name, memory in self._memory(step):
            self.memory.setdefault(name, memory)

    def _memory(self, step: Step) -> Iterator[tuple[str, Memory]]:
        match step:
            case Launch(results=results, kernel=kernel):
                for name, kind in zip(results, kernel.outputs, strict=True):
                    yield name, Memory(type=kind, is_contiguous=name not in self.placed)
            case Room(result=result, type=kind, within=None):
                yield result, Memory(type=kind, is_contiguous=True)
            case Room(result=result, type=kind):
                yield result, Memory(type=kind, is_contiguous=False)
            case Reinterpret(result=result, input=source, map=how, type=kind):
                memory = self.memory.get(source)
                known = memory and memory_of_view(how, memory, kind)
                if known is not None:
                    yield result, known


def _runs(steps: Sequence[Step], placed: Set[str]) -> list[_Run]:
    """Each step in one run, in order."""
    runs = [_Run(placed)]
    for step in steps:
        if not runs[-1].takes(step):
            runs.append(_Run(placed))
        runs[-1].add(step)
        if not isinstance(step, NativeStep):
            runs.append(_Run(placed))
    return [run for run in runs if run.steps]


def _same_in_every_call(plan: Plan) -> frozenset[str]:
    """Names of the module's own tensors, and of views of them that no argument has a say in."""
    own = (Parameter, Constant)
    found = {node.name for node in plan.graph.nodes if isinstance(node.kind, own)}
    for step in plan.steps:
        if isinstance(step, Reinterpret) and step.input in found:
            sizes = (*step.type.shape, *_sizes_of_view(step.map, step.type))
            if all(dim.is_static for dim in sizes):
                found.add(step.result)
    return frozenset(found)


def _reads_any(step: Step, names: Set[str]) -> bool:
    return isinstance(step, Launch) and not names.isdisjoint(step.inputs)


def _parts(
    steps: Sequence[Step], read_later: Set[str], placed: Set[str], kept: Set[str]
) -> list[Part]:
    """Steps in a row as a segment between views."""
    before: list[Part] = []
    inside: list[NativeStep] = []
    made: set[str] = set()
    for step in steps:
        match step:
            case Launch(results=results):
                inside.append(step)
                made.update(results)
            case Reinterpret() | Room() as own if _is_of(own, made):
                inside.append(own)
                made.add(own.result)
            case _:  # A view of what was there before.
                before.append(step)
    roots = _roots(inside)
    outside = [step for step in inside if isinstance(step, Reinterpret | Room)]
    after = _views_for(outside, read_later)
    given = (made & placed) - {step.result for step in outside}
    wanted = {roots.get(name, name) for name in made if name in read_later} | given
    used = _used(inside)
    inputs = tuple(_inputs(inside, made))
    segment = Segment(
        name="",
        steps=tuple(used),
        results=tuple(name for name in _memories(inside) if name in wanted),
        inputs=inputs,
        kept=frozenset(name for name in inputs if name in kept),
        slots=slots_of(inside, roots, wanted, given),
        sizes=tuple(_sizes(used, wanted)),
    )
    return [*before, segment, *after]


def _is_of(step: Reinterpret | Room, made: Set[str]) -> bool:
    """Whether what the step gives has memory that the segment deals with."""
    source = _source(step)
    return source is None or source in made


def _roots(steps: Sequence[NativeStep]) -> Mapping[str, str]:
    """What each view and each part is one of, through all of them."""
    roots: dict[str, str] = {}
    for step in steps:
        source = None if isinstance(step, Launch) else _source(step)
        if source is not None:
            roots[step.result] = roots.get(source, source)
    return roots


def _views_for(steps: Sequence[Reinterpret | Room], read_later: Set[str]) -> list[Part]:
    """The views among the steps that somebody reads later, and those that they are views of."""
    wanted = set(read_later)
    found: list[Part] = []
    for step in reversed(steps):
        source = _source(step)
        if source is not None and step.result in wanted:
            wanted.add(source)
            found.insert(0, step)
    return found


def _used(steps: Sequence[NativeStep]) -> list[NativeStep]:
    """The steps without views that none of them reads."""
    read: set[str] = set()
    found: list[NativeStep] = []
    for step in reversed(steps):
        if not isinstance(step, Reinterpret) or step.result in read:
            read.update(reads(step))
            found.insert(0, step)
    return found


def _source(step: Reinterpret | Room) -> str | None:
    if isinstance(step, Reinterpret):
        return step.input
    return None if step.within is None else step.within.whole


def _memories(steps: Sequence[NativeStep]) -> Iterator[str]:
    """Values that have memory of their own, in order."""
    rooms: set[str] = set()
    for step in steps:
        match step:
            case Room(result=result, within=within):
                rooms.add(result)
                if within is None:
                    yield result
            case Launch(results=results):
                yield from (name for name in results if name not in rooms)


def _inputs(steps: Sequence[NativeStep], made: Set[str]) -> Iterator[str]:
    """What launches read and no step makes, each once."""
    read = (name for step in steps if isinstance(step, Launch) for name in step.inputs)
    yield from dict.fromkeys(name for name in read if name not in made)


def _sizes(steps: Sequence[NativeStep], results: Set[str]) -> Iterator[Dim]:
    """Sizes that are not in the words of the tensors that the caller gives."""
    own = set(_memories(steps)) - results
    found: dict[Dim, None] = {}
    for step in steps:
        match step:
            case Launch(results=written, kernel=kernel):
                found |= dict.fromkeys(sizes_used(kernel))
                for name, kind in zip(written, kernel.outputs, strict=True):
                    found |= dict.fromkeys(kind.shape if name in own else ())
            case Room(type=kind, within=within) if within is not None:
                found |= dict.fromkeys((within.start, kind.shape[within.dim]))
            case Room(result=result, type=kind):
                found |= dict.fromkeys(kind.shape if result in own else ())
            case Reinterpret(map=how, type=kind):
                found |= dict.fromkeys(_sizes_of_view(how, kind))
    yield from (dim for dim in found if not dim.is_static)


def _sizes_of_view(how: ViewMap, kind: TensorType) -> tuple[Dim, ...]:
    match how:
        case Reshape() | Expand():
            return kind.shape
        case Slice(dim, start, _, _):
            return (start, kind.shape[dim])
        case Select(_, index):
            return (index,)
    return ()


def _named(plan: Plan, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, each segment under a name of its own."""
    taken = {kernel.name for kernel in plan.kernels}
    count = sum(isinstance(part, Segment) for part in parts)
    names = _fresh(taken, count)
    return tuple(
        replace(part, name=next(names)) if isinstance(part, Segment) else part for part in parts
    )


def _fresh(taken: Set[str], count: int) -> Iterator[str]:
    for number in range(1, count + 1):
        name = "forward" if count == 1 else f"forward_{number}"
        while name in taken:
            name += "_"
        yield name
