"""Attention: two products and the softmax between them in one launch."""

from collections.abc import Mapping
from functools import partial

from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.configs import Config
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Expand, Reshape, View
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.attention_configs import (
    ELEMENTS,
    LEAST_COLUMNS,
    MOST_COLUMNS,
    AttentionSizes,
    attention_configs,
    attention_seconds,
    attention_sizes,
    library_seconds,
    sizes_of_node,
)
from kernelwright.schedule.families.family import (
    Description,
    Family,
    Free,
    Launcher,
    Unit,
    Work,
)
from kernelwright.schedule.host_bound import waits_for_host
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library


def _grow(free: Free, launchers: Mapping[type, Launcher]) -> list[Unit]:
    return [
        Unit(members=(node,), launch=partial(launchers[Attention], node, free.graph, free.machine))
        for node in free.graph.nodes
        if isinstance(node.kind, Attention) and node.name in free.movable
    ]


def _launch(node: Node, graph: Graph, machine: Machine) -> Launch:
    inputs = [graph[name] for name in node.inputs]
    kernel = Kernel(
        family=ATTENTION.name,
        anchor=node.kind,
        inputs=tuple(item.type for item in inputs),
        epilogue=None,
        outputs=(node.tensor,),
        config=attention_configs(sizes_of_node(node, graph), machine)[0],
        **labels((node,)),
    )
    return launched(kernel, (node,), inputs)


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    kind = node.kind
    assert isinstance(kind, Attention)
    if machine.attention is None:
        return "our kernel needs warpgroup products, which this card has not"
    inputs = [graph[name].tensor for name in node.inputs]
    if inputs[0].dtype not in ELEMENTS:
        return "it computes with other numbers than float32, float16 or bfloat16"
    if any(not 2 <= it.rank <= 4 for it in inputs[:3]) or any(it.rank > 4 for it in inputs):
        return "it has other dimensions than batch, head, row and column"
    if kind.scale is not None and not kind.scale > 0:
        return "its scale is not positive"
    sizes = sizes_of_node(node, graph)
    if not LEAST_COLUMNS <= sizes.depth <= MOST_COLUMNS or sizes.width > MOST_COLUMNS:
        return f"its heads do not have {LEAST_COLUMNS} to {MOST_COLUMNS} columns"
    # No call of the library stands for a node that a mask may leave rows without keys.
    if library is Library.NEVER or node.origin is None:
        return None
    ours, theirs = attention_seconds(sizes, machine), library_seconds(sizes, machine)
    theirs += sum(_repeating_seconds(graph[name], graph, machine) for name in node.inputs[1:3])
    if ours < theirs or (sizes.dtype is not DType.F32 and waits_for_host(graph, machine)):
        return None
    return f"modelled {ours * 1e6:.3g} us, the library {theirs * 1e6:.3g} us"


def _repeating_seconds(operand: Node, graph: Graph, machine: Machine) -> float:
    """Seconds of the copy in which heads repeat for a group: ours reads them where they lie."""
    node, is_joined = operand, False
    while isinstance(node.kind, View):
        if is_joined and isinstance(node.kind.map, Expand):
            return (
                operand.tensor.bytes_hint / machine.copy_bandwidth + machine.launches.next_seconds
            )
        is_joined |= isinstance(node.kind.map, Reshape)
        node = graph[node.inputs[0]]
    return 0.0


def _sizes_of_kernel(kernel: Kernel) -> AttentionSizes:
    q, k, v = kernel.inputs[:3]
    assert isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)
    return attention_sizes(kernel.anchored(Attention), q, k, v, kernel.output)


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return attention_configs(_sizes_of_kernel(kernel), machine)


def _cost(kernel: Kernel) -> Work:
    sizes = _sizes_of_kernel(kernel)
    units = {DType.F32: "fp16x3", DType.F16: "fp16", DType.BF16: "bf16"}
    return Work(flops=sizes.flops, products=sizes.flops, units=(units[sizes.dtype],))


def _same_text(kernel: Kernel) -> object:
    return (kernel.anchor, kernel.config)


def _describe(kernel: Kernel) -> Description:
    anchor = kernel.anchored(Attention)
    masks = {
        Masking.NONE: "",
        Masking.KEEP: ", where a mask keeps them",
        Masking.ADD: " plus a mask",
    }
    causal = ", causal" if anchor.causal else ""
    scale = "1 / sqrt(depth)" if anchor.scale is None else f"{anchor.scale:g}"
    what = f" of {anchor.weighing} over keys{causal}"
    how = f"{anchor.weighing}(%0 %1^T * {scale}{masks[anchor.masking]}) %2"
    turned = f".permute{anchor.order}" if anchor.order else ""
    return Description(
        what=what, computes=(f"%out0 = ({how}){turned}" if turned else f"%out0 = {how}",)
    )


def _apart(first: Kernel, second: Kernel) -> str:
    return "a block of the second needs results of many blocks of the first"


ATTENTION = Family(
    name="attention",
    nodes=(Attention,),
    grow=_grow,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    holds="a block of the first ends with rows of one head, and the second needs others",
    writes_anywhere=lambda kernel: True,
)
