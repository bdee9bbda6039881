"""Rules on convolutions."""

from dataclasses import replace

from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Conv, Pointwise, Reshape, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


def _bias_of_convolution(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # PyTorch adds the bias in a kernel of its own after cuDNN's: conv(x, w, b) = conv(x, w) + b,
    # with the same roundings. What follows can add it on the way.
    call = node.origin
    if not isinstance(node.kind, Conv) or call is None or len(set(node.inputs)) < 3:
        return None
    if not around.is_read_by_kernel(node.name):
        return None
    spatial = len(node.kind.stride)
    vector = around.node(node.inputs[2])
    dtype = node.tensor.dtype
    if node.tensor.rank != spatial + 2 or vector.tensor.dtype != dtype:
        return None
    column = Node(
        name=around.fresh(vector.name),
        kind=View(Reshape()),
        type=TensorType(dtype, (*vector.tensor.shape, *[ONE] * spatial)),
        inputs=(vector.name,),
        source=node.source,
    )
    bare = replace(
        node,
        name=around.fresh(node.name),
        inputs=node.inputs[:2],
        origin=call.without(vector.name),
    )
    added = replace(
        node,
        kind=Pointwise(Call("add", (Operand(0, dtype), Operand(1, dtype)), dtype)),
        inputs=(bare.name, column.name),
        origin=None,
        operators=("bias",),
    )
    return (column, bare, added)


CONVOLUTION_RULES = (
    Rule(name="bias of a convolution added by what follows", match=_bias_of_convolution),
)
