"""What our kernels take, one predicate a row, each with its reason."""

from collections.abc import Callable
from enum import Enum
from math import ceil, prod

from kernelwright.ir.graph import Contract, Graph, Node, Pointwise
from kernelwright.ir.types import DType, ScalarType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.roles import Roles, roles

MAX_RANK = 8
"""Dimensions of a tensor that a launcher reads; `MAX_RANK` in kernels/launch.cuh."""


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
        reasons += [rule(node, inputs, machine) for rule in LIBRARY_IS_FASTER]
    return next((reason for reason in reasons if reason), None)


def _tensor_cores_take_it(node: Node, inputs: list[Node], machine: Machine) -> str | None:
    # Ours runs on the CUDA cores; cuBLAS multiplies 16-bit matrices on the tensor cores.
    unit = {DType.F16: "fp16", DType.BF16: "bf16"}.get(node.tensor.dtype)
    faster = unit is not None and machine.flops.get(unit, 0.0) > machine.flops["fp32_simt"]
    return "the library's 16-bit matrix product is faster than ours" if faster else None


def _few_tiles(node: Node, inputs: list[Node], machine: Machine) -> str | None:
    # Ours gives a tile to one multiprocessor for the whole of K; the library splits K, and has
    # kernels of its own for vectors. (1 x 8192 x 4096: 41 us there, 650 us here.)
    sizes = [dim.hint for dim in node.tensor.shape]
    assert isinstance(node.kind, Contract)
    found = roles(node.kind)
    assert isinstance(found, Roles)
    rows = sizes[-2] if found.m else 1
    batch = prod(sizes[: len(found.batch)])
    tiles = batch * ceil(rows / _SMALL_TILE[0]) * ceil(sizes[-1] / _SMALL_TILE[1])
    return "it has too few tiles to fill the card" if tiles < machine.sm_count // 2 else None


_SMALL_TILE = (32, 64)
LIBRARY_IS_FASTER: tuple[Callable[[Node, list[Node], Machine], str | None], ...] = (
    _tensor_cores_take_it,
    _few_tiles,
)
