"""What our kernels take, one predicate a row, each with its reason."""

from collections.abc import Callable
from enum import Enum

from kernelwright.ir.graph import Contract, Conv, Graph, Node, Pointwise, Reshape, Slice, View
from kernelwright.ir.types import ScalarType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.configs import ranked_products
from kernelwright.schedule.gemm_model import (
    convolution_seconds,
    is_convincing,
    library_seconds,
    product_shape,
)
from kernelwright.schedule.many_small import many_small_library_seconds
from kernelwright.schedule.roles import roles

MAX_RANK = 8
"""Dimensions of a tensor that a launcher reads; `MAX_RANK` in kernels/common/launch.cuh."""


class Library(Enum):
    """When a call that we have a kernel for goes to PyTorch's libraries all the same."""

    WHERE_FASTER = "where faster"
    NEVER = "never"


Predicate = Callable[[Node, list[Node]], str | None]


def _is_float(node: Node, inputs: list[Node]) -> str | None:
    # Sums of integers must be exact, and complex numbers are pairs.
    dtype = node.tensor.dtype
    return None if dtype.is_float else f"its elements are {dtype.value}"


def _is_matrix_product(node: Node, inputs: list[Node]) -> str | None:
    assert isinstance(node.kind, Contract)
    found = roles(node.kind)
    return found if isinstance(found, str) else None


def _rank_fits(node: Node, inputs: list[Node]) -> str | None:
    # The launchers keep sizes and strides in arrays of this length.
    ranks = [item.type.rank for item in (node, *inputs) if isinstance(item.type, TensorType)]
    return None if max(ranks) <= MAX_RANK else f"it has more than {MAX_RANK} dimensions"


def _no_complex(node: Node, inputs: list[Node]) -> str | None:
    types = [item.type for item in (node, *inputs)]
    complex_numbers = any(
        isinstance(kind, TensorType | ScalarType) and kind.dtype.is_complex for kind in types
    )
    return "it computes with complex numbers" if complex_numbers else None


GEMM: tuple[Predicate, ...] = (_is_float, _is_matrix_product, _rank_fits)
POINTWISE: tuple[Predicate, ...] = (_rank_fits, _no_complex)


def why_not(node: Node, graph: Graph, machine: Machine, library: Library) -> str | None:
    """None if a kernel of ours computes `node`, otherwise the reason for leaving it to PyTorch."""
    inputs = [graph[name] for name in node.inputs]
    match node.kind:
        case Pointwise():
            rules = POINTWISE
        case Contract():
            rules = GEMM
        case _:
            return "kernelwright has no kernel for it"
    reasons = [rule(node, inputs) for rule in rules]
    if isinstance(node.kind, Contract) and library is Library.WHERE_FASTER and not any(reasons):
        return _why_the_library(node, graph, machine)
    return next((reason for reason in reasons if reason), None)


def _why_the_library(node: Node, graph: Graph, machine: Machine) -> str | None:
    assert isinstance(node.kind, Contract)
    types = [graph[name].type for name in node.inputs]
    shape = product_shape(node.kind, types, node.tensor)
    (ours, config), *_ = ranked_products(shape, shape.dtype.itemsize, machine)
    ours += sum(_picking_seconds(node, graph[name], graph, machine) for name in node.inputs)
    is_conv = node.part_of is not None and isinstance(node.part_of.kind, Conv)
    if shape.are_many_small(machine) and not is_conv:
        library = many_small_library_seconds(node, shape, graph, machine)
        convincing = machine.many_small.margin * ours <= library
    else:
        seconds = convolution_seconds if is_conv else library_seconds
        library = seconds(shape, machine)
        convincing = is_convincing(config, shape, ours, library, machine)
    if convincing:
        return None
    if library <= ours:
        return f"the library is faster (modelled {library * 1e6:.3g} us, ours {ours * 1e6:.3g} us)"
    times = f"modelled {ours * 1e6:.3g} us, the library {library * 1e6:.3g} us"
    return f"the model is not sure enough that ours is faster ({times})"


def _picking_seconds(product: Node, operand: Node, graph: Graph, machine: Machine) -> float:
    """Of the copy that takes some of an operand's indices out, where its dimensions are joined.

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
