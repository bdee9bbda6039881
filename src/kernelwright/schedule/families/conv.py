"""Convolutions on tensor cores, with what becomes of each element of their results."""

from dataclasses import replace
from math import inf

from kernelwright.ir.anchors import Convolution
from kernelwright.ir.configs import Config
from kernelwright.ir.conv_configs import ConvConfig, ConvStore, DirectConfig
from kernelwright.ir.expr import Expr, operations
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Conv, Project
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import TensorType, TupleType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.conv_configs import general_config, ranked_convolutions
from kernelwright.schedule.conv_instructions import long_instructions
from kernelwright.schedule.conv_model import conv_rates
from kernelwright.schedule.conv_or_library import (
    forecast,
    planes_of,
    sizes_of,
)
from kernelwright.schedule.conv_shape import ConvSizes, conv_sizes, differs_by_place
from kernelwright.schedule.element_groups import ElementGroup, inputs_and_expression
from kernelwright.schedule.families.elements import grow_elements, work_of
from kernelwright.schedule.families.family import Description, Family, Work
from kernelwright.schedule.gemm_work import PRODUCT_UNITS
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library


def _launch(group: ElementGroup, graph: Graph, machine: Machine) -> Launch:
    inputs, expression = inputs_and_expression(group, graph)
    node = group.anchor
    assert node is not None and isinstance(node.kind, Conv)
    rounding = node.kind.rounding
    assert rounding is not None, f"{node.name} is the library's"
    times = None if group.results else forecast(node, graph, machine)
    results = _results(group, graph)
    types = tuple(it.type for it in inputs)
    sizes = _with_epilogue(sizes_of(node, graph), node.kind, expression, types)
    kernel = Kernel(
        family=CONV.name,
        anchor=Convolution(
            conv=replace(node.kind, rounding=None),
            has_bias=len(node.inputs) - node.kind.operands > 2,
            rounding=rounding,
            sizes=tuple(dim.hint for dim in inputs[0].tensor.shape),
            why="" if times is None else str(times),
        ),
        inputs=types,
        prologue=None if node.kind.reduction is None else node.kind.reduction.value,
        epilogue=expression,
        outputs=tuple(it.tensor for it in results),
        config=_ranked(sizes, planes_of(rounding), machine)[0],
        **labels(group.in_order(graph)),
    )
    return launched(kernel, results, inputs)


def _results(group: ElementGroup, graph: Graph) -> tuple[Node, ...]:
    """The nodes whose values the kernel writes; those that nobody reads have names, too."""
    root = group.root
    if not isinstance(root.type, TupleType):
        return (root,)
    known = {it.kind.index: it for it in group.results if isinstance(it.kind, Project)}
    taken = {node.name for node in graph.nodes}
    return tuple(
        known.get(at)
        or replace(root, name=fresh_name(f"{root.name}_{at}", taken), kind=Project(at), type=kind)
        for at, kind in enumerate(root.type.items)
    )


def _ranked(sizes: ConvSizes, planes: int, machine: Machine) -> tuple[Config, ...]:
    """At least one: what no configuration takes the launcher gives to the CUDA cores."""
    ranked = ranked_convolutions(sizes, planes, machine)
    found: tuple[ConvConfig | DirectConfig, ...] = tuple(config for _, config in ranked)
    found = found or (general_config(sizes, planes),)
    is_one = sizes.over_channels and not sizes.keeps_channels
    if is_one or not sizes.reads_by_place:
        return found
    # What is read where the sums are stored comes for more of them at a time.
    return tuple(
        replace(config, store=ConvStore.LINES) if isinstance(config, ConvConfig) else config
        for config in found
    )


def _with_epilogue(
    sizes: ConvSizes, conv: Conv, expression: Expr, inputs: tuple[ValueType, ...]
) -> ConvSizes:
    """The sizes with what is computed where the results are stored."""
    return replace(
        sizes,
        operation=0 if conv.reduction else long_instructions(expression),
        reads_by_place=any(differs_by_place(it, sizes.spatial) for it in inputs[2:]),
    )


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    # Decided for the whole graph at once: see conv_or_library.py.
    conv = node.kind
    assert isinstance(conv, Conv)
    return None if conv.rounding is not None else conv.why or "the library computes it"


def sizes_of_kernel(kernel: Kernel) -> ConvSizes:
    """The captured sizes of a kernel's convolution."""
    data, weight = kernel.inputs[:2]
    assert isinstance(data, TensorType) and isinstance(weight, TensorType)
    conv = kernel.anchored(Convolution).conv
    sizes = conv_sizes(conv, data, weight, kernel.outputs[0])
    assert kernel.epilogue is not None
    return _with_epilogue(sizes, conv, kernel.epilogue, kernel.inputs)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    planes = planes_of(kernel.anchored(Convolution).rounding)
    return _ranked(sizes_of_kernel(kernel), planes, machine)


def _seconds(kernel: Kernel, machine: Machine) -> float | None:
    planes = planes_of(kernel.anchored(Convolution).rounding)
    ranked = ranked_convolutions(sizes_of_kernel(kernel), planes, machine)
    # The model may be wrong.
    return conv_rates(machine).margin * ranked[0][0] if ranked else inf


def _cost(kernel: Kernel) -> Work:
    sizes = sizes_of_kernel(kernel)
    # cuDNN's TF32 has as many bits as fp16: nobody needs more.
    planes = planes_of(kernel.anchored(Convolution).rounding)
    before = 0 if kernel.prologue is None else operations(kernel.prologue) + 1
    if sizes.has_program:
        # The maximum, the exponential of a distance from it, and the sum.
        before += 3 + sizes.keeps_channels
    if sizes.moments is not None:
        # A sum, and a sum of squared distances.
        before += 4
    steps = work_of(kernel) * kernel.outputs[0].numel_hint + before * sizes.output_elements
    return Work(
        flops=steps + sizes.flops,
        products=sizes.flops,
        units=("fp16", "tf32") if planes == 1 else PRODUCT_UNITS[sizes.dtype],
    )


def _same_text(kernel: Kernel) -> object:
    anchor = kernel.anchored(Convolution)
    broadcast = tuple(
        tuple(dim.text == "1" for dim in kind.shape) if isinstance(kind, TensorType) else None
        for kind in kernel.inputs
    )
    return (
        str(kernel.prologue),
        str(kernel.epilogue),
        anchor.conv,
        anchor.has_bias,
        anchor.rounding,
        broadcast,
        kernel.config,
        general_config(sizes_of_kernel(kernel), 2),
    )


def _describe(kernel: Kernel) -> Description:
    anchor = kernel.anchored(Convolution)
    what = f" {anchor}; {anchor.why}" if anchor.why else f" {anchor}"
    steps = () if kernel.prologue is None else (f"before it is reduced: {kernel.prologue}",)
    if len(kernel.outputs) > 1:
        *results, mean, _ = kernel.outputs
        written = tuple(f"{it} = {kernel.prologue}" for it in results)
        return Description(
            what=what, computes=(*written, f"{mean}, twice: means and spreads of it")
        )
    return Description(what=what, computes=(*steps, f"{kernel.output} = {kernel.epilogue}"))


def _apart(first: Kernel, second: Kernel) -> str:
    return "a convolution reads its operands many times, so they are computed once before it"


def _anywhere(kernel: Kernel) -> bool:
    return True


CONV = Family(
    name="conv",
    nodes=(Conv,),
    grow=grow_elements,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    writes_anywhere=_anywhere,
    seconds=_seconds,
)
