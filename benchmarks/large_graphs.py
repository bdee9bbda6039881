"""Graphs of any number of nodes, like captures of large modules: what planning is measured on."""

from collections.abc import Callable, Mapping

from kernelwright.ir.calls import AtenCall, Record, Ref
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Contract,
    Conv,
    Input,
    Kind,
    Parameter,
    Permute,
    Pointwise,
    Project,
    Reduce,
    Reduction,
    Reshape,
    Select,
    Unsqueeze,
    View,
)
from kernelwright.ir.types import Dim, DType, TensorType, TupleType

Shape = tuple[int, ...]


class _Writer:
    """Nodes of float32 tensors, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(
        self, kind: Kind, shape: Shape, *inputs: str, call: AtenCall | None = None, word: str = ""
    ) -> str:
        return self.add(kind, _tensor(shape), inputs, call, word)

    def add(
        self,
        kind: Kind,
        type_: TensorType | TupleType,
        inputs: tuple[str, ...],
        call: AtenCall | None,
        word: str,
    ) -> str:
        name = f"n{len(self.nodes)}"
        operators = (word,) if word else ()
        self.nodes.append(
            Node(name=name, kind=kind, type=type_, inputs=inputs, origin=call, operators=operators)
        )
        return name

    def parameter(self, shape: Shape) -> str:
        return self(Parameter(f"p{len(self.nodes)}"), shape)

    def op(self, name: str, shape: Shape, *inputs: str) -> str:
        """An operation on elements."""
        operands = tuple(Operand(at, DType.F32) for at in range(len(inputs)))
        return self(Pointwise(Call(name, operands, DType.F32)), shape, *inputs, word=name)

    def graph(self, result: str) -> Graph:
        return Graph(name="large", nodes=tuple(self.nodes), returns=Ref(result))


def _tensor(shape: Shape) -> TensorType:
    return TensorType(DType.F32, tuple(Dim.static(size) for size in shape))


def unrolled_loop(nodes: int) -> Graph:
    """A recurrent cell, seven nodes a step: a sequence's elements and the state by weights."""
    steps = nodes // 7
    write = _Writer()
    sequence = write(Input("x"), (64, steps, 128))
    state = write(Input("h"), (64, 256))
    inside, across = write.parameter((256, 128)), write.parameter((256, 256))
    bias = write.parameter((256,))
    for step in range(steps):
        index = Select(1, Dim.static(step))
        element = write(View(index), (64, 128), sequence, word="select")
        rows = write(Contract("ab", "cb", "ac"), (64, 256), element, inside, word="linear")
        turned = write(View(Permute((1, 0))), (256, 256), across, word="t")
        kept = write(Contract("ab", "bc", "ac"), (64, 256), state, turned, word="matmul")
        total = write.op("add", (64, 256), rows, kept)
        total = write.op("add", (64, 256), total, bias)
        state = write.op("tanh", (64, 256), total)
    return write.graph(state)


def dense_blocks(nodes: int) -> Graph:
    """Blocks of 24 layers as DenseNet's: each reads what all before it have written."""
    write = _Writer()
    value, channels = write(Input("x"), (8, 64, 28, 28)), 64
    while len(write.nodes) < nodes:
        parts = [value]
        for _ in range(24):
            width = 64 + 32 * (len(parts) - 1)
            whole = write(Concat(1), (8, width, 28, 28), *parts, call=_cat(parts), word="cat")
            parts.append(_layer(write, whole, width, 32))
        value = _layer(write, parts[-1], 32, channels)
    return write.graph(value)


def _cat(parts: list[str]) -> AtenCall:
    return AtenCall(
        "aten.cat.default", (Record("list", tuple(Ref(name) for name in parts), ()), 1), ()
    )


def _layer(write: _Writer, value: str, channels: int, out: int) -> str:
    """Normalised by its batch, and a convolution."""
    shape = (8, channels, 28, 28)
    value = write.op("relu", shape, _normalised(write, value, shape, (0, 2, 3)))
    weight = write.parameter((out, channels, 3, 3))
    conv = Conv(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    call = AtenCall("aten.conv2d.default", (Ref(value), Ref(weight), None), ())
    return write(conv, (8, out, 28, 28), value, weight, call=call, word="conv2d")


def _normalised(write: _Writer, value: str, shape: Shape, dims: tuple[int, ...]) -> str:
    total = tuple(1 if at in dims else size for at, size in enumerate(shape))
    kinds = TupleType((_tensor(total), _tensor(total)))
    pair = write.add(Reduce(Reduction.MOMENTS, dims), kinds, (value,), None, "norm")
    mean, spread = (write(Project(at), total, pair, word="norm") for at in (0, 1))
    centred = write.op("sub", shape, value, mean)
    return write.op("mul", shape, centred, write.op("rsqrt", total, spread))


def transformer(nodes: int) -> Graph:
    """Layers with a product, its bias in another shape, norms of rows and a residual."""
    write = _Writer()
    shape = (8, 256, 512)
    value = write(Input("x"), shape)
    while len(write.nodes) < nodes:
        normed = _normalised(write, value, shape, (2,))
        weight, bias = write.parameter((512, 512)), write.parameter((8, 64))
        product = write(Contract("abc", "dc", "abd"), shape, normed, weight, word="linear")
        heads = (8, 256, 8, 64)
        split = write(View(Reshape()), heads, product, word="view")
        added = write.op("add", heads, split, bias)
        active = write.op("tanh", heads, added)
        joined = write(View(Reshape()), shape, active, word="view")
        gate = write.parameter((512,))
        column = write(View(Unsqueeze(0)), (1, 512), gate, word="unsqueeze")
        scaled = write.op("mul", shape, joined, column)
        value = write.op("add", shape, scaled, value)
    return write.graph(value)


FAMILIES: Mapping[str, Callable[[int], Graph]] = {
    "unrolled loop": unrolled_loop,
    "dense blocks": dense_blocks,
    "transformer": transformer,
}
