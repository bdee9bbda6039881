"""Whether a product is ours or the library's, by the modelled time of both."""

from dataclasses import dataclass

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Reshape, Slice, View
from kernelwright.ir.product_configs import GemmConfig, TensorCoreConfig
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.gemm_configs import ranked_products
from kernelwright.schedule.legality import NOT_SURE, first_reason, rank_fits
from kernelwright.schedule.library_model import (
    convolution_seconds,
    is_convincing,
    library_seconds,
    patches_seconds,
)
from kernelwright.schedule.many_small import many_small_library_seconds
from kernelwright.schedule.product_shape import product_shape
from kernelwright.schedule.roles import roles
from kernelwright.schedule.steps_after import seconds_after
from kernelwright.schedule.tensor_core_model import edge_seconds
from kernelwright.schedule.wide_ranges import has_wide_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSeconds:
    """Modelled seconds of a product on the card."""

    ours: float
    library: float
    is_convincing: bool
    """Whether ours is faster for sure."""
    on_cuda_cores: bool
    """Whether our best kernel multiplies on CUDA cores, many rows by many columns."""


def why_no_product(node: Node, graph: Graph) -> str | None:
    """Reason why a contraction is no matrix product that our kernels compute; None for those."""
    return first_reason((_is_float, _is_matrix_product, rank_fits), node, graph)


def _is_float(node: Node, inputs: list[Node]) -> str | None:
    # Sums of integers must be exact, and complex numbers are pairs.
    dtype = node.tensor.dtype
    return None if dtype.is_float else f"its elements are {dtype.value}"


def _is_matrix_product(node: Node, inputs: list[Node]) -> str | None:
    assert isinstance(node.kind, Contract)
    found = roles(node.kind)
    return found if isinstance(found, str) else None


def why_the_library(node: Node, graph: Graph, machine: Machine) -> str | None:
    """Reason for leaving a product to the library; None where ours is faster for sure."""
    found = product_seconds(node, graph, machine)
    if found.is_convincing:
        return None
    ours, library = f"{found.ours * 1e6:.3g} us", f"{found.library * 1e6:.3g} us"
    if found.library <= found.ours:
        return f"the library is faster (modelled {library}, ours {ours})"
    return f"{NOT_SURE} (modelled {ours}, the library {library})"


def product_seconds(node: Node, graph: Graph, machine: Machine) -> ProductSeconds:
    """Seconds of a product by our best kernel and by the library."""
    assert isinstance(node.kind, Contract)
    types = [graph[name].type for name in node.inputs]
    shape = product_shape(node.kind, types, node.tensor)
    called = shape.copied
    is_conv = node.part_of is not None and isinstance(node.part_of.kind, Conv)
    (ours, config), *others = ranked_products(shape, shape.dtype.itemsize, machine)
    if isinstance(config, TensorCoreConfig) and shape.dtype is DType.F32:
        if has_wide_factor(node, graph):
            # Pairs of fp16 numbers do not carry it: the kernel goes on on the CUDA cores.
            ours += min(it for it, other in others if not isinstance(other, TensorCoreConfig))
        if is_conv and _is_joined(node, graph):
            ours += edge_seconds(shape, config, machine)
    ours += sum(_picking_seconds(node, graph[name], graph, machine) for name in node.inputs)
    if called.are_many_small(machine) and not is_conv:
        library = many_small_library_seconds(node, called, graph, machine)
        convincing = machine.many_small.margin * ours <= library
    elif called.have_small_tiles(machine) and not is_conv:
        library = library_seconds(called, machine)
        convincing = machine.library.margin * ours <= library
    elif _is_of_patches(node, graph) and machine.convolutions is not None:
        library = patches_seconds(called, machine)
        convincing = machine.library.margin * ours <= library
    else:
        if is_conv:
            library = convolution_seconds(called, machine)
        else:
            library = library_seconds(called, machine, adds_bias=_adds_bias(node))
        if shape.dtype is not DType.F32 and not is_conv:
            library += seconds_after(node, graph, machine)
        convincing = is_convincing(config, shape, ours, library, machine)
    return ProductSeconds(
        ours=ours,
        library=library,
        is_convincing=convincing,
        on_cuda_cores=isinstance(config, GemmConfig),
    )


def _is_joined(node: Node, graph: Graph) -> bool:
    """Whether other tensors join the product, as a norm's parameters join a convolution."""
    readers = [graph[name] for name in graph.users()[node.name]]
    return len(readers) == 1 and (
        isinstance(readers[0].kind, Pointwise) and len(readers[0].inputs) > 1
    )


def _adds_bias(node: Node) -> bool:
    """Whether the library's call adds a bias to the product."""
    return node.part_of is not None and len(node.part_of.call.refs) > len(node.inputs)


def _is_of_patches(node: Node, graph: Graph) -> bool:
    """Whether a product is a convolution of several taps: of patches side by side."""
    if node.part_of is None or not isinstance(node.part_of.kind, Conv):
        return False
    _, weight, *_ = node.part_of.call.refs
    kind = next((it.type for it in graph.nodes if it.name == weight), None)
    return isinstance(kind, TensorType) and any(size.hint > 1 for size in kind.shape[2:])


def _picking_seconds(product: Node, operand: Node, graph: Graph, machine: Machine) -> float:
    """Seconds of the copy that takes some indices of an operand out, where dimensions are joined.

    So it is for a convolution with strides, which the library reads in place; what the user takes
    out before the call is copied for both.
    """
    given = () if product.part_of is None else product.part_of.call.refs
    joined = False
    source = operand
    while isinstance(source.kind, View) and source.name not in given:
        if joined and isinstance(source.kind.map, Slice):
            copying = 2 * operand.tensor.bytes_hint / machine.copy_bandwidth
            return copying + machine.launches.product_seconds
        joined |= isinstance(source.kind.map, Reshape)
        source = graph[source.inputs[0]]
    return 0.0
