"""Rules on convolutions, which stay PyTorch's."""

from dataclasses import replace

from kernelwright.ir.calls import AtenCall, Ref
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Node, Opaque, Pointwise, Reshape, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import TensorType
from kernelwright.rewrite.driver import Rule, Surroundings

_SPATIAL = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_SPATIAL |= {f"conv_transpose{n}d": n for n in (1, 2, 3)}
"""Convolutions and their spatial dimensions; the third argument is the bias."""


def _bias_of_convolution(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # PyTorch adds the bias in a kernel of its own after cuDNN's: conv(x, w, b) = conv(x, w) + b,
    # with the same roundings. What follows can add it on the way.
    call = node.origin
    if not isinstance(node.kind, Opaque) or call is None or len(call.args) < 3:
        return None
    spatial = _SPATIAL.get(call.target.removeprefix("aten.").split(".")[0])
    bias = call.args[2]
    if spatial is None or not isinstance(bias, Ref) or not around.is_read_by_kernel(node.name):
        return None
    vector = around.node(bias.name)
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
    bare_call = AtenCall(call.target, (*call.args[:2], None, *call.args[3:]), call.kwargs)
    bare = replace(node, name=around.fresh(node.name), inputs=bare_call.refs, origin=bare_call)
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
