"""The program: a plan whose launches are native calls, and where their values lie."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.ir.graph import Graph, Update
from kernelwright.ir.kinds import Parameter
from kernelwright.ir.plan import Kernel, Launch, Plan, Reinterpret, Room, Step, reads
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType

NativeStep = Launch | Room | Reinterpret
"""What a native call can do without PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Memory that several values have one after the other: none is written while another is read.

    It lies in the call's arena and is as large as its largest value, or it is the memory of a
    result, which its other values have before the result is written.
    """

    values: tuple[str, ...]
    """Values that only the segment reads."""
    result: str | None = None
    """The result whose memory it is; its values take no more bytes at any sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Launches in a row as one native call."""

    name: str
    """Unique among the program's segments and kernels: `forward`."""
    steps: tuple[NativeStep, ...]
    """Launches, the rooms of what they write, and views of that."""
    results: tuple[str, ...]
    """What it writes in memory that the caller gives: values that are read later, and buffers."""
    inputs: tuple[str, ...]
    """What it reads and does not make, each once."""
    kept: frozenset[str]
    """Inputs that are the module's own, and views of them that are the same in every call."""
    slots: tuple[Slot, ...]
    """Memory of all other values that it makes."""
    sizes: tuple[Dim, ...]
    """Sizes that it computes with and that are known at call time only, each once."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches in order."""
        return tuple(step for step in self.steps if isinstance(step, Launch))


Part = Step | Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole `forward` as native calls, calls left to PyTorch, and views between them."""

    plan: Plan
    parts: tuple[Part, ...]
    """In execution order. A launch that stands alone is a part of its own."""
    in_place: Mapping[str, Update]
    """Updates of buffers that launches write themselves, by the result that takes the buffer."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The native calls of several launches."""
        return tuple(part for part in self.parts if isinstance(part, Segment))

    @property
    def reshaped(self) -> frozenset[str]:
        """Results that take buffers of another shape: dimensions of size 1 are all that differs."""
        graph = self.plan.graph
        shapes = {n.kind.path: n.tensor.shape for n in graph.nodes if isinstance(n.kind, Parameter)}
        return frozenset(
            name
            for name, update in self.in_place.items()
            if update.path in shapes and shapes[update.path] != graph[name].tensor.shape
        )

    @property
    def called(self) -> tuple[Kernel, ...]:
        """Kernels of launches that are parts of their own, each once."""
        found = (part.kernel for part in self.parts if isinstance(part, Launch))
        return tuple({kernel.name: kernel for kernel in found}.values())


def part_reads(part: Part) -> tuple[str, ...]:
    """What a part reads, in order."""
    return part.inputs if isinstance(part, Segment) else reads(part)


def types_of(segment: Segment) -> dict[str, TensorType]:
    """The type of each value that the segment makes."""
    found: dict[str, TensorType] = {}
    for step in segment.steps:
        match step:
            case Launch(results=results, kernel=kernel):
                found |= dict(zip(results, kernel.outputs, strict=True))
            case Room(result=result, type=kind) | Reinterpret(result=result, type=kind):
                found[result] = kind
    return found


def inputs_by_kind(
    segment: Segment, graph: Graph
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The inputs that a call brings: tensors, real numbers, and integers."""
    tensors, reals, integers = [], [], []
    for name in (it for it in segment.inputs if it not in segment.kept):
        node = graph.find(name)
        match None if node is None else node.type:
            case ScalarType(DType.F64):
                reals.append(name)
            case ScalarType():
                integers.append(name)
            case _:
                tensors.append(name)
    return tuple(tensors), tuple(reals), tuple(integers)
