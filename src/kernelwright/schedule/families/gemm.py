"""Matrix products, with what becomes of each element of their results."""

from dataclasses import replace

from kernelwright.ir.anchors import Triangle
from kernelwright.ir.configs import Config, Feed, GemmConfig, TensorCoreConfig
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel, Launch
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.element_groups import ElementGroup, inputs_and_expression
from kernelwright.schedule.families.elements import grow_elements, work_of
from kernelwright.schedule.families.family import Description, Family, Work
from kernelwright.schedule.gemm_configs import ranked_products
from kernelwright.schedule.gemm_model import product_shape
from kernelwright.schedule.gemm_work import PRODUCT_UNITS, contraction_flops, kept_share
from kernelwright.schedule.launches import labels, launched
from kernelwright.schedule.legality import Library
from kernelwright.schedule.product_or_library import why_no_product, why_the_library
from kernelwright.schedule.triangles import kept_triangle


def _launch(group: ElementGroup, graph: Graph, machine: Machine) -> Launch:
    inputs, expression = inputs_and_expression(group, graph)
    assert group.anchor is not None and isinstance(group.anchor.kind, Contract)
    types = tuple(node.type for node in inputs)
    triangle = kept_triangle(expression)
    output = group.root.tensor
    kernel = Kernel(
        family=GEMM.name,
        anchor=group.anchor.kind,
        inputs=types,
        epilogue=expression,
        outputs=(output,),
        config=_ranked(group.anchor.kind, types, output, machine, triangle)[0][1],
        triangle=triangle,
        **labels(group.in_order(graph)),
    )
    return launched(kernel, [group.root], inputs)


def _ranked(
    anchor: Contract,
    inputs: tuple[ValueType, ...],
    output: TensorType,
    machine: Machine,
    triangle: Triangle | None,
) -> tuple[tuple[float, Config], ...]:
    """Configurations with their modelled seconds, best first."""
    widest = max(it.dtype.itemsize for it in (output, *inputs) if isinstance(it, TensorType))
    shape = product_shape(anchor, inputs, output, triangle)
    ranked = ranked_products(shape, widest, machine)
    if anchor.patches is None or anchor.patches.are_pixels:
        return ranked
    return tuple(entry for entry in ranked if _takes_patches(entry[1]))


def _takes_patches(config: Config) -> bool:
    """Whether the variant brings them to where it multiplies."""
    return isinstance(config, TensorCoreConfig) and config.feed.is_direct and not config.transposed


def _why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    assert isinstance(node.kind, Contract)
    if node.kind.patches is not None:
        # Who computes a convolution was decided before it was one by place.
        return None
    reason = why_no_product(node, graph)
    if reason is None and library is Library.WHERE_FASTER:
        return why_the_library(node, graph, machine)
    return reason


def _configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return tuple(config for _, config in _ranked_for(kernel, machine))


def _seconds(kernel: Kernel, machine: Machine) -> float:
    return _ranked_for(kernel, machine)[0][0]


def _ranked_for(kernel: Kernel, machine: Machine) -> tuple[tuple[float, Config], ...]:
    anchor = kernel.anchored(Contract)
    return _ranked(anchor, kernel.inputs, kernel.output, machine, kernel.triangle)


def _cost(kernel: Kernel) -> Work:
    factor, anchor = kernel.inputs[0], kernel.anchored(Contract)
    assert isinstance(factor, TensorType)
    rounds = anchor.patches is not None and anchor.patches.rounds_from is not None
    products = round(
        contraction_flops(anchor, kernel.inputs, kernel.output)
        * kept_share(kernel.triangle, kernel.output)
    )
    return Work(
        flops=work_of(kernel) * kernel.output.numel_hint + products,
        products=products,
        # As convolutions have it (conv.py).
        units=("fp16", "tf32") if rounds else PRODUCT_UNITS.get(factor.dtype, ()),
    )


def _same_text(kernel: Kernel) -> object:
    # How a product is multiplied matters; only on the CUDA cores is one tile as good as another.
    way = None if isinstance(kernel.config, GemmConfig) else kernel.config
    return (str(kernel.epilogue), kernel.anchor, way)


def _describe(kernel: Kernel) -> Description:
    kept = f", {kernel.triangle}" if kernel.triangle else ""
    return Description(
        what=f" {kernel.anchor}{kept}", computes=(f"{kernel.output} = {kernel.epilogue}",)
    )


def _apart(first: Kernel, second: Kernel) -> str:
    return "a product reads its operands many times, so they are computed once before it"


def _at_any_size(config: Config) -> Config:
    if isinstance(config, GemmConfig):
        return replace(config, min_tiles=2)
    if isinstance(config, TensorCoreConfig):
        return replace(config, min_products=0, least_ahead=0)
    return config


def _wants_whole_rows(config: Config) -> bool:
    return isinstance(config, TensorCoreConfig) and config.feed is not Feed.SPLIT


def _writes_anywhere(kernel: Kernel) -> bool:
    """Whether rows may lie apart, as those of a part of a concatenation do."""
    return isinstance(kernel.config, TensorCoreConfig) and kernel.config.feed.is_direct


GEMM = Family(
    name="gemm",
    nodes=(Contract,),
    grow=grow_elements,
    launch=_launch,
    why_not=_why_not,
    configs=_configs,
    cost=_cost,
    same_text=_same_text,
    describe=_describe,
    apart=_apart,
    at_any_size=_at_any_size,
    seconds=_seconds,
    wants_whole_rows=_wants_whole_rows,
    writes_anywhere=_writes_anywhere,
)
