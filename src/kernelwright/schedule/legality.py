"""What our kernels take, whatever their family: one predicate a row, each with its reason."""

from collections.abc import Callable, Iterable
from enum import Enum

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.types import ScalarType, TensorType

MAX_RANK = 8
"""Dimensions of a tensor that a launcher reads; `MAX_RANK` in kernels/common/launch.cuh."""


class Library(Enum):
    """When a call that we have a kernel for goes to PyTorch's libraries all the same."""

    WHERE_FASTER = "where faster"
    NEVER = "never"


NOT_SURE = "the model is not sure enough that ours is faster"
MAY_BE = "the library may be faster"
SMALL = "it is small: its time is launches and latencies, which the model cannot predict"


def is_guess(why: str) -> bool:
    """Whether a reason for the library is one that a card may overrule."""
    return why.startswith((NOT_SURE, MAY_BE, SMALL))


Predicate = Callable[[Node, list[Node]], str | None]


def first_reason(rules: Iterable[Predicate], node: Node, graph: Graph) -> str | None:
    """What the first rule that a node breaks says of it; None if it keeps all."""
    inputs = [graph[name] for name in node.inputs]
    return next((why for rule in rules if (why := rule(node, inputs))), None)


def rank_fits(node: Node, inputs: list[Node]) -> str | None:
    """The reason of a tensor with too many dimensions."""
    # The launchers keep sizes and strides in arrays of this length.
    ranks = [item.type.rank for item in (node, *inputs) if isinstance(item.type, TensorType)]
    return None if max(ranks) <= MAX_RANK else f"it has more than {MAX_RANK} dimensions"


def no_complex(node: Node, inputs: list[Node]) -> str | None:
    """The reason of complex elements."""
    types = [item.type for item in (node, *inputs)]
    complex_numbers = any(
        isinstance(kind, TensorType | ScalarType) and kind.dtype.is_complex for kind in types
    )
    return "it computes with complex numbers" if complex_numbers else None
