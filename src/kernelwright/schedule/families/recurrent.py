"""Recurrent layers: all steps of a stack in one launch."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kernelwright.ir.anchors import Recurrence
from kernelwright.ir.configs import Config
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Project
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import (
    Description,
    Family,
    Free,
    Launcher,
    Unit,
    Work,
)
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library
from kernelwright.schedule.recurrent_configs import (
    RecurrentSizes,
    library_seconds,
    loop_seconds,
    recurrent_configs,
    recurrent_seconds,
    recurrent_sizes,
    why_none,
)

_DTYPES = frozenset({DType.F32, DType.F16, DType.BF16})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """A node, and those of its results that somebody reads, in order."""

    node: Node
    results: tuple[Node, ...]


def _stack_of(node: Node, graph: Graph) -> _Stack:
    readers = [graph[name] for name in graph.users()[node.name]]
    return _Stack(node=node, results=tuple(sorted(readers, key=_index)))


def _index(item: Node) -> int:
    assert isinstance(item.kind, Project)
    return item.kind.index


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    found = []
    for node in free.graph.nodes:
        if isinstance(node.kind, Recurrent) and node.name in free.movable:
            stack = _stack_of(node, free.graph)
            launch = partial(launchers[Recurrent], stack, free.graph, free.machine)
            found.append(Unit(members=(node, *stack.results), launch=launch))
    return found


def _sizes(node: Node, graph: Graph) -> RecurrentSizes:
    assert isinstance(node.kind, Recurrent)
    data, state = (graph[name].tensor for name in node.inputs[:2])
    return recurrent_sizes(node.kind, data, state)


def _launch(stack: _Stack, graph: Graph, machine: Machine) -> Launch:
    node = stack.node
    assert isinstance(node.kind, Recurrent)
    inputs = [graph[name] for name in node.inputs]
    sizes = _sizes(node, graph)
    kernel = Kernel(
        family=RECURRENT.name,
        anchor=Recurrence(
            layers=node.kind,
            hidden=sizes.hidden,
            results=tuple(_index(item) for item in stack.results),
        ),
        inputs=tuple(item.type for item in inputs),
        epilogue=None,
        outputs=tuple(item.tensor for item in stack.results),
        config=recurrent_configs(sizes, machine)[0],
        **labels((node,)),
    )
    return launched(kernel, stack.results, inputs)


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    inputs = [graph[name].type for name in node.inputs]
    found = {it.dtype for it in inputs if isinstance(it, TensorType)}
    if (
        len(found) > 1
        or not found <= _DTYPES
        or not all(isinstance(it, TensorType) for it in inputs)
    ):
        return "it computes with other numbers than float32, float16 or bfloat16"
    assert isinstance(node.kind, Recurrent)
    if node.kind.is_loop and found != {DType.F32}:
        return "its loop rounds every value of a step to 16 bits, and our kernel only the states"
    stack, sizes = _stack_of(node, graph), _sizes(node, graph)
    if not stack.results or len(set(map(_index, stack.results))) < len(stack.results):
        return "one of its results is used under several names, or none is read"
    why = why_none(sizes, machine)
    assert isinstance(node.kind, Recurrent)
    if why is not None or node.kind.is_loop or library is Library.NEVER:
        return why
    ours = recurrent_seconds(sizes, recurrent_configs(sizes, machine)[0], machine)
    theirs = library_seconds(sizes, machine)
    if ours < theirs:
        return None
    return f"modelled {ours * 1e6:.3g} us, the library {theirs * 1e6:.3g} us"


def loop_is_slower(node: Node, graph: Graph, machine: Machine) -> bool:
    """Whether launches for each of a node's steps are modelled to take longer than it does."""
    sizes = _sizes(node, graph)
    ours = recurrent_seconds(sizes, recurrent_configs(sizes, machine)[0], machine)
    return ours < loop_seconds(sizes, machine)


def _sizes_of_kernel(kernel: Kernel) -> RecurrentSizes:
    data, state = kernel.inputs[:2]
    assert isinstance(data, TensorType) and isinstance(state, TensorType)
    return recurrent_sizes(kernel.anchored(Recurrence).layers, data, state)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return recurrent_configs(_sizes_of_kernel(kernel), machine)


def _cost(kernel: Kernel) -> Work:
    sizes = _sizes_of_kernel(kernel)
    unit = "fp16x3" if sizes.planes == 2 else "fp16"
    return Work(flops=sizes.flops, products=sizes.flops, units=(unit,))


def _same_text(kernel: Kernel) -> object:
    return (kernel.anchor, kernel.config)


def _describe(kernel: Kernel) -> Description:
    anchor = kernel.anchored(Recurrence)
    layers = anchor.layers
    ways = " in both directions" if layers.directions == 2 else ""
    what = f" of {layers.layers} {layers.cell} layers of {anchor.hidden} units{ways}"
    names = ("the last layer's states of all steps", "the last hidden states", "the last cells")
    lines = zip(kernel.outputs, anchor.results, strict=True)
    return Description(what=what, computes=tuple(f"{it} = {names[at]}" for it, at in lines))


def _apart(first: Kernel, second: Kernel) -> str:
    return "every step of the second needs results of many blocks of the first"


RECURRENT = Family(
    name="recurrent",
    nodes=(Recurrent,),
    grow=_grow,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    holds="the second can start only when the first has taken all its steps",
)
