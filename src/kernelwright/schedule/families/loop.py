"""Loops that carry a value: all steps of an element in one thread."""

from collections.abc import Mapping, Sequence
from functools import partial

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import Accumulator, Expr, Operand, operations, transform
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Loop
from kernelwright.ir.loop_configs import LoopConfig
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.families.family import (
    Description,
    Family,
    Free,
    Launcher,
    Unit,
    Work,
    computed,
)
from kernelwright.schedule.launches import labels, launched

_AHEAD = (4, 8, 16, 32)
"""Steps whose operands are on their way together: a thread waits for memory once in so many."""
_MOST_WORDS = 128
"""Registers of 32 bits for the operands of the steps now and of those after them."""
_MOST_OPERATIONS = 512
"""Operations of unrolled steps, so that their text stays in the cache of instructions."""
_THREADS = (128, 32)
"""Blocks of a warp where elements are few: each has a multiprocessor to itself."""


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    return [
        Unit(members=(it,), launch=partial(launchers[Loop], it, free.graph, free.machine))
        for it in free.graph.nodes
        if isinstance(it.kind, Loop) and it.name in free.movable
    ]


def _launch(node: Node, graph: Graph, machine: Machine) -> Launch:
    assert isinstance(node.kind, Loop)
    dtype = node.tensor.dtype
    inputs = [graph[name] for name in node.inputs]

    def carried(leaf: Expr) -> Expr:
        return Accumulator(dtype) if isinstance(leaf, Operand) and leaf.index == 0 else leaf

    types = tuple(item.type for item in inputs)
    kernel = Kernel(
        family=LOOP.name,
        anchor=node.kind,
        inputs=types,
        prologue=Operand(0, dtype),
        epilogue=transform(node.kind.body, carried),
        outputs=(node.tensor,),
        config=_ways(node.kind, node.tensor, types, machine)[0],
        **labels((node,)),
    )
    return launched(kernel, [node], inputs)


def _ways(
    loop: Loop, output: TensorType, inputs: Sequence[ValueType], machine: Machine
) -> tuple[LoopConfig, ...]:
    """All configurations; first larger blocks, where all multiprocessors have one, and the fewest
    steps whose operands keep memory busy: registers for more leave room for fewer threads."""
    elements = output.numel_hint // max(1, output.shape[0].hint)
    words = sum(max(4, it.dtype.itemsize) // 4 for it in inputs[1:] if isinstance(it, TensorType))
    many, few = _THREADS
    order = (many, few) if elements >= many * machine.sm_count else (few, many)
    least, *larger = _AHEAD
    most_steps = min(
        _MOST_WORDS // (2 * max(1, words)), _MOST_OPERATIONS // max(1, operations(loop.body))
    )
    fitting = [least, *(ahead for ahead in larger if ahead <= most_steps)]
    on_their_way = (
        machine.copy_bandwidth * machine.scans.read_seconds / (4 * max(1, words * elements))
    )
    first = next((ahead for ahead in fitting if ahead >= on_their_way), fitting[-1])
    fitting.sort(key=lambda ahead: ahead != first)
    return tuple(LoopConfig(ahead=ahead, threads=it) for it in order for ahead in fitting)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return _ways(kernel.anchored(Loop), kernel.output, kernel.inputs, machine)


def _cost(kernel: Kernel) -> Work:
    return Work(flops=kernel.output.numel_hint * operations(kernel.anchored(Loop).body))


def _same_text(kernel: Kernel) -> object:
    return (str(kernel.anchored(Loop).body), kernel.config)


def _describe(kernel: Kernel) -> Description:
    what = f" of {kernel.output.shape[0]} steps"
    each = f"{kernel.output} = {kernel.epilogue}, step by step"
    return Description(what=what, computes=(f"acc of {kernel.prologue}", each))


def _apart(first: Kernel, second: Kernel) -> str:
    return "a thread of the second takes all steps of one element before another starts"


LOOP = Family(
    name="loop",
    nodes=(Loop,),
    grow=_grow,
    launch=_launch,
    why_not=computed,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    writes_anywhere=lambda kernel: True,
)
