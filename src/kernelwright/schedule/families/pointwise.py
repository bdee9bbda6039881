"""Pointwise kernels: an expression for each element of a result, and no anchor."""

from collections.abc import Sequence

from kernelwright.ir.configs import Config
from kernelwright.ir.expr import Expr, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Pointwise, Relayout
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import extents
from kernelwright.machine import Machine
from kernelwright.schedule.element_groups import ElementGroup, inputs_and_expression
from kernelwright.schedule.families.elements import grow_elements, is_located, work_of
from kernelwright.schedule.families.family import Description, Family, Work
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library, first_reason, no_complex, rank_fits
from kernelwright.schedule.pointwise_configs import pointwise_configs


def _launch(group: ElementGroup, graph: Graph, machine: Machine) -> Launch:
    inputs, expression = inputs_and_expression(group, graph)
    return _launched(group.root, group.in_order(graph), inputs, expression)


def launch_copy(copy: Node, source: Node) -> Launch:
    """The launch of a node, none of the graph's yet, that has the elements of another one."""
    return _launched(copy, [copy], [source], Operand(0, copy.tensor.dtype))


def _launched(
    root: Node, members: Sequence[Node], inputs: Sequence[Node], expression: Expr
) -> Launch:
    types = tuple(node.type for node in inputs)
    kernel = Kernel(
        family=POINTWISE.name,
        anchor=None,
        inputs=types,
        epilogue=expression,
        outputs=(root.tensor,),
        config=pointwise_configs(types, root.tensor)[0],
        **labels(members),
    )
    return launched(kernel, [root], inputs)


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    return first_reason((rank_fits, no_complex), node, graph)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return pointwise_configs(kernel.inputs, kernel.output)


def _cost(kernel: Kernel) -> Work:
    return Work(flops=work_of(kernel) * kernel.output.numel_hint)


def _same_text(kernel: Kernel) -> object:
    return (str(kernel.epilogue), kernel.config, kernel.reads_transposed)


def _describe(kernel: Kernel) -> Description:
    return Description(what="", computes=(f"{kernel.output} = {kernel.epilogue}",))


def _writes_anywhere(kernel: Kernel) -> bool:
    return not is_located(kernel)


def _alone(kernel: Kernel, place: int, own: set[int]) -> bool:
    # A line is dense, whatever its dimensions of size 1 say.
    is_line = len(extents(kernel.output)) <= 1
    return not is_located(kernel) and (not kernel.reads_transposed or is_line)


POINTWISE = Family(
    name="pointwise",
    nodes=(Pointwise, Relayout),
    grow=grow_elements,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    writes_anywhere=_writes_anywhere,
    alone=_alone,
)
