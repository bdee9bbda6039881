"""Meaning of a Graph: each node computed in plain PyTorch, one after the other."""

import inspect
import itertools
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelwright.ir.attending import attended
from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import Argument, AtenCall, Code, Instance, Record, Ref, Text
from kernelwright.ir.expr import (
    Accumulator,
    Call,
    Coordinate,
    Expr,
    Literal,
    Operand,
    Size,
    Total,
    transform,
)
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Accumulation,
    Concat,
    Constant,
    Contract,
    Conv,
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Gather,
    Input,
    Loop,
    Opaque,
    Pad,
    Parameter,
    Patches,
    Permute,
    Pointwise,
    Pooling,
    Project,
    Reduce,
    Reduction,
    Relayout,
    Reshape,
    Roll,
    Scan,
    Select,
    Slice,
    Squeeze,
    TileMoments,
    TileReduction,
    Unsqueeze,
    View,
    ViewMap,
    Window,
    Write,
)
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.recurring import recurred
from kernelwright.ir.types import Dim, DType, TensorType

TORCH_DTYPES = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I64: torch.int64,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.I8: torch.int8,
    DType.U8: torch.uint8,
    DType.BOOL: torch.bool,
    DType.C64: torch.complex64,
    DType.C128: torch.complex128,
}

# A few roundings. PyTorch's CPU kernels round a number that is added to a 16-bit tensor to 16 bits
# first; its CUDA kernels do not, nor does the graph.
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}

_THERE = Parameter | Constant | View | Write | Opaque | Project
"""Kinds whose values no kernel makes: they lie where they lie."""

# What the texts of sizes and conditions may name.
_NAMES = {"torch": torch, "math": math}

# Where the expression's name is not that of a function of torch.
_OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "log_sigmoid": F.logsigmoid,
    "softplus": lambda x, beta, bound: torch.where(
        x * beta > bound, x, torch.log1p(torch.exp(x * beta)) / beta
    ),
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * slope),
    "elu": lambda x, alpha, scale, input_scale: torch.where(
        x <= 0, torch.expm1(x * input_scale) * alpha * scale, x * scale
    ),
}


def reduced(op: Reduction, x: torch.Tensor, dims: tuple[int, ...]) -> Any:
    """What the rows of `x` are reduced to."""
    match op:
        case Reduction.MOMENTS:
            mean = x.mean(dims, keepdim=True)
            return mean, (x - mean).square().sum(dims, keepdim=True)
        case Reduction.EXP_SUM:
            lowest = x.new_full(
                [1 if at in dims else n for at, n in enumerate(x.shape)], -torch.inf
            )
            high = x.amax(dims, keepdim=True) if x.numel() else lowest
            terms = torch.where(high == -torch.inf, 0.0, torch.exp(x - high))
            return high, terms.sum(dims, keepdim=True)
        case Reduction.PRODUCT:
            for dim in dims:
                x = x.prod(dim, keepdim=True)
            return x
        case Reduction.ARGMAX | Reduction.ARGMIN:
            kept = [dim for dim in range(x.dim()) if dim not in dims]
            rows = x.permute(*kept, *dims).flatten(len(kept))
            shape = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
            return getattr(rows, op.value)(-1).reshape(shape)
    names = {Reduction.MAXIMUM: "amax", Reduction.MINIMUM: "amin"}
    return getattr(torch, names.get(op, op.value))(x, dims, keepdim=True)


def scanned(kind: Scan, x: torch.Tensor) -> torch.Tensor:
    """The running totals of `x`."""
    x = x.flip(kind.dim) if kind.reverse else x
    if kind.exclusive:
        neutral = torch.full_like(x.narrow(kind.dim, 0, 1), kind.op is Accumulation.PRODUCT)
        x = torch.cat([neutral, x.narrow(kind.dim, 0, x.shape[kind.dim] - 1)], kind.dim)
    totals = x.cumsum(kind.dim) if kind.op is Accumulation.SUM else x.cumprod(kind.dim)
    return totals.flip(kind.dim) if kind.reverse else totals


def laid_out(value: Any, node: Node) -> Any:
    """Value of a node in the layout of its type, if a kernel writes it."""
    if not isinstance(node.type, TensorType) or isinstance(node.kind, _THERE):
        return value
    order = node.type.layout.order if node.type.layout else tuple(range(value.dim()))
    return value.permute(order).contiguous().permute([order.index(dim) for dim in sorted(order)])


def _indices(count: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """0 to `count` - 1 along dimension `dim`, which is negative."""
    return torch.arange(count, dtype=dtype).reshape(-1, *[1] * (-dim - 1))


def looped(
    step: Callable[[list[Any]], torch.Tensor], shape: list[int], operands: Sequence[Any]
) -> torch.Tensor:
    """The carried values of a loop, one after the other; `step` takes one and its operands."""
    carried, results = operands[0], []
    for at in range(shape[0]):
        each = [_element(operand, at, len(shape)) for operand in operands[1:]]
        carried = step([carried, *each]).expand(shape[1:]).clone()
        results.append(carried)
    return torch.stack(results) if results else torch.empty(shape, dtype=carried.dtype)


def _element(operand: Any, step: int, rank: int) -> Any:
    """What a step of a loop reads of an operand that broadcasts to `rank` dimensions."""
    if not isinstance(operand, torch.Tensor) or operand.dim() < rank:
        return operand
    return operand[step if operand.shape[0] > 1 else 0]


def contracted(
    kind: Contract, shape: Sequence[int], left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """The sum of products, of this shape."""
    if kind.patches is not None:
        left = _patches(kind.patches, shape, left)
    return torch.einsum(kind.equation, left, right)


def _patches(kind: Patches, shape: Sequence[int], images: torch.Tensor) -> torch.Tensor:
    """Rows of patches, as many of an image as `shape` says."""
    parts = []
    for taps in itertools.product(*map(range, kind.taps)):
        part = images
        for at, tap in enumerate(taps):
            places = torch.arange(shape[1 + at]) * kind.stride[at] - kind.padding[at]
            places = places + tap * kind.dilation[at]
            inside = (places >= 0) & (places < images.shape[1 + at])
            part = part.index_select(1 + at, places.clamp(0, max(0, images.shape[1 + at] - 1)))
            mask = inside.reshape(-1, *[1] * (2 - at))
            part = torch.where(mask, part, torch.zeros_like(part))
        parts.append(part)
    return torch.cat(parts, -1)


def gathered(dim: int, source: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Slices of `source` along `dim` at the places that `index` names, from the end if negative."""
    places = torch.where(index < 0, index + source.shape[dim], index)
    shape = (*source.shape[:dim], *index.shape, *source.shape[dim + 1 :])
    return source.index_select(dim, places.flatten()).reshape(shape)


def pooled(kind: Window, x: torch.Tensor, shape: list[int], *weights: torch.Tensor) -> torch.Tensor:
    """Windows of `x`, as many as `shape` says: one dimension after the other."""
    if weights:
        return _dots(kind, x, shape, *weights)
    lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    outside = 0 if kind.op is Pooling.SUM else lowest
    for at, size in enumerate(kind.size):
        dim = x.dim() - len(kind.size) + at
        starts = kind.stride[at] * torch.arange(shape[dim]) - kind.padding[at]
        taps = []
        for places in (starts + tap * kind.dilation[at] for tap in range(size)):
            values = x.index_select(dim, places.clamp(0, x.shape[dim] - 1))
            inside = (places >= 0) & (places < x.shape[dim])
            mask = inside.reshape(-1, *[1] * (x.dim() - dim - 1))
            taps.append(torch.where(mask, values, torch.full_like(values, outside)))
        stack = torch.stack(taps)
        x = stack.sum(0, dtype=x.dtype) if kind.op is Pooling.SUM else stack.amax(0)
    return x


def _dots(kind: Window, x: torch.Tensor, shape: list[int], w: torch.Tensor) -> torch.Tensor:
    """Each channel's products with its weights, one place of the window after the other."""
    count = len(kind.size)
    total = torch.zeros(shape, dtype=torch.float64)
    for taps in itertools.product(*map(range, kind.size)):
        value, inside = x.double(), torch.ones((), dtype=torch.bool)
        for at, tap in enumerate(taps):
            dim = x.dim() - count + at
            places = kind.stride[at] * torch.arange(shape[dim]) - kind.padding[at]
            places += tap * kind.dilation[at]
            value = value.index_select(dim, places.clamp(0, x.shape[dim] - 1))
            here = (places >= 0) & (places < x.shape[dim])
            inside = inside & here.reshape(-1, *[1] * (x.dim() - dim - 1))
        if kind.op is Pooling.DOT_LAST:
            weight = w[taps[:-1]].double()
        else:
            places_of_tap: Any = (slice(None), *taps)
            weight = w[places_of_tap].double().reshape(-1, *[1] * count)
        total += torch.where(inside, value * weight, 0.0)
    return total.to(x.dtype)


def run_graph(
    graph: Graph, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What `module(*args, **kwargs)` returns according to its graph; buffers change as they would.

    Raises RefusedCallError for a call that the graph is not for, and WrongValueError where a node
    has another value than its type or its own ATen call says.
    """
    return GraphRun(graph, module, bound_arguments(module, args, kwargs)).result()


class RefusedCallError(ValueError):
    """A guard of the graph that a call does not satisfy, as the emitted text would raise it."""


class WrongValueError(AssertionError):
    """A node whose value is not what its record says."""


def bound_arguments(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Arguments of a call by the names of `forward`'s parameters, defaults filled in."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def convolved(
    conv: Conv,
    shape: Sequence[int],
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """What the node means, by calls without padding; `shape` is the result's."""
    count = len(conv.stride)
    sizes, taps = source.shape[-count:], weight.shape[2:]
    reach = [step * (tap - 1) + 1 for step, tap in zip(conv.dilation, taps, strict=True)]
    geometry = list(zip(shape[-count:], sizes, conv.stride, conv.padding, reach, strict=True))
    options = {"stride": conv.stride, "dilation": conv.dilation, "groups": conv.groups}
    if conv.transposed:
        whole = getattr(F, f"conv_transpose{count}d")(source, weight, **options)
        behind = [out + pad - ((n - 1) * s + r) for out, n, s, pad, r in geometry]
        widths = [(-pad, last) for (*_, pad, _), last in zip(geometry, behind, strict=True)]
        result = F.pad(whole, [width for pair in reversed(widths) for width in pair])
    else:
        behind = [(out - 1) * s + r - n - pad for out, n, s, pad, r in geometry]
        widths = [(pad, last) for (*_, pad, _), last in zip(geometry, behind, strict=True)]
        padded = F.pad(source, [width for pair in reversed(widths) for width in pair])
        result = getattr(F, f"conv{count}d")(padded, weight, **options)
    return result if bias is None else result + bias.view(-1, *[1] * count)


def reduced_tile(reduction: TileReduction, values: torch.Tensor, shape: Sequence[int]) -> Any:
    """What a convolution's kernel reduces its results to; `shape` is what is left of windows."""
    if reduction.moments is not None:
        moments = reduced(Reduction.MOMENTS, values, tuple(range(2, values.dim())))
        return moments if reduction.moments is TileMoments.ALONE else (values, *moments)
    if reduction.over_windows is not None:
        neutral = {Reduction.MAXIMUM: -torch.inf, Reduction.MINIMUM: torch.inf}
        sizes = list(zip(shape[2:], reduction.window, strict=True))
        widths = [(0, n * w - have) for (n, w), have in zip(sizes, values.shape[2:], strict=True)]
        values = F.pad(
            values,
            [width for pair in reversed(widths) for width in pair],
            value=neutral.get(reduction.over_windows, 0.0),
        )
        for at, (_, window) in enumerate(sizes):
            parts = torch.unflatten(values, 2 + at, (-1, window))
            found: torch.Tensor = reduced(reduction.over_windows, parts, (3 + at,))
            values = found.squeeze(3 + at)
    return (
        values
        if reduction.over_channels is None
        else reduced(reduction.over_channels, values, (1,))
    )


def _device_of(arguments: Mapping[str, Any]) -> torch.device:
    """Device of the first tensor among the arguments; the CPU where there is none."""
    tensors = (leaf for leaf in tree_leaves(dict(arguments)) if isinstance(leaf, torch.Tensor))
    first = next(tensors, None)
    return torch.device("cpu") if first is None else first.device


def _expect_close(node: Node, value: Any, again: Any) -> None:
    """Raise WrongValueError unless the node's value is what its call gives."""
    first = again[0] if isinstance(again, tuple) else again
    tolerance = TOLERANCES.get(first.dtype, 2e-5)
    try:
        torch.testing.assert_close(value, again, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        raise WrongValueError(f"{node.name} is not {node.origin}: {error}") from error


def _class_of(instance: Instance, module: nn.Module) -> Callable[..., Any]:
    """The class that the instance is made by, in a module's name for it."""
    home = sys.modules[instance.module or type(module).__module__]
    found: Callable[..., Any] = operator.attrgetter(instance.name)(home)
    return found


def _placed(leaf: Expr, index: int) -> Expr:
    """The leaf, where the sums are an operand with this index."""
    return Operand(index, leaf.dtype) if isinstance(leaf, Accumulator) else leaf


def _of_row(leaf: Expr) -> Expr:
    """The leaf, where a channel's value is the first operand and the totals follow it."""
    match leaf:
        case Accumulator(dtype):
            return Operand(0, dtype)
        case Total(index, dtype):
            return Operand(1 + index, dtype)
    return leaf


class GraphRun:
    """One call of a module, computed node by node."""

    def __init__(self, graph: Graph, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        self.graph = graph
        self.module = module
        self.arguments = arguments
        self.device = _device_of(arguments)
        self.values: dict[str, Any] = {}
        """Values of the nodes so far, by name."""
        self.symbols: dict[str, int] = {}
        self.current: list[int] = []
        """Shape of the value that expressions are evaluated for."""

    def result(self) -> Any:
        """The value of the call; buffers take their updates."""
        with self.device:  # which new tensors are made on
            self.read_arguments()
            self.work()
            for update in self.graph.updates:
                self.attribute(update.path).data.copy_(self.values[update.value])
            return self.argument(self.graph.returns)

    def read_arguments(self) -> None:
        """Note the values of inputs and symbols; refuse what the guards refuse."""
        for node in self.graph.inputs:
            assert isinstance(node.kind, Input)
            self.values[node.name] = eval(node.kind.argument, {}, dict(self.arguments))
        for symbol in self.graph.symbols:
            value = self.values[symbol.input]
            self.symbols[symbol.name] = value if symbol.dim is None else value.shape[symbol.dim]
        for guard in self.graph.guards:
            known = {**self.arguments, **self.symbols}
            if not eval(guard.condition, dict(_NAMES), known):
                raise RefusedCallError(guard.message)

    def work(self) -> None:
        """Compute every node in order."""
        for node in self.graph.nodes:
            if not isinstance(node.kind, Input):
                self.values[node.name] = laid_out(self.compute(node), node)
            self.check(node)

    def compute(self, node: Node) -> Any:
        operands = [self.values[name] for name in node.inputs]
        match node.kind:
            case Parameter(path) | Constant(str(path)):
                return self.attribute(path)
            case Constant(_, values):
                found = torch.tensor(values, dtype=TORCH_DTYPES[node.tensor.dtype])
                return found.view(self.shape(node))
            case Pointwise(expr):
                self.current = self.shape(node)
                return self.expression(expr, operands).expand(self.current).clone()
            case Contract() as contract:
                return contracted(contract, self.shape(node), *operands)
            case Reduce(op, dims):
                return reduced(op, operands[0], dims)
            case Scan():
                return scanned(node.kind, operands[0])
            case Loop(body):
                return looped(partial(self.expression, body), self.shape(node), operands)
            case Window():
                return pooled(node.kind, operands[0], self.shape(node), *operands[1:])
            case Conv():
                return self.convolution(node.kind, self.shape(node), operands)
            case Recurrent():
                return recurred(node.kind, operands)
            case Attention():
                return attended(node.kind, operands)
            case Gather(dim):
                return gathered(dim, *operands)
            case Concat(dim):
                return torch.cat(operands, dim)
            case Write(dim, start, _, path):
                whole, part = operands
                result = whole if path is not None else whole.clone()
                result.narrow(dim, self.size(start), part.shape[dim]).copy_(part)
                return result
            case Pad(before, after, value):
                pairs = reversed(list(zip(before, after, strict=True)))
                return F.pad(operands[0], [width for pair in pairs for width in pair], value=value)
            case View(index_map):
                return self.view(index_map, operands[0], node)
            case Relayout():
                return operands[0].clone()
            case Opaque():
                assert node.origin is not None
                return self.call(node.origin)
            case Project(index):
                return operands[0][index]
        raise AssertionError(node)

    def convolution(self, conv: Conv, shape: list[int], operands: list[Any]) -> Any:
        """What the node means, with what becomes of its results."""
        own = operands[: len(operands) - conv.operands]
        reduction = conv.reduction
        if reduction is None:
            return convolved(conv, shape, *own)
        self.current = [self.size(dim) for dim in reduction.shape]
        results = convolved(conv, self.current, *own)
        step = transform(reduction.value, partial(_placed, index=len(operands)))
        values = self.expression(step, [*operands, results]).expand(self.current)
        left = reduced_tile(reduction, values, shape)
        if reduction.result is None:
            return left
        return self.expression(transform(reduction.result, _of_row), [values, *left])

    def check(self, node: Node) -> None:
        """Raise WrongValueError unless the value has its node's type and is what its call gives."""
        if isinstance(node.type, TensorType):
            value = self.values[node.name]
            expected = (TORCH_DTYPES[node.type.dtype], self.shape(node))
            found = (value.dtype, list(value.shape))
            if found != expected:
                raise WrongValueError(f"{node.name} is {found}, and its type says {expected}")
        if node.origin is not None and not isinstance(node.kind, Opaque):
            _expect_close(node, self.values[node.name], self.call(node.origin))

    def attribute(self, path: str) -> torch.Tensor:
        """The parameter, buffer or attribute at a dotted path."""
        found: torch.Tensor = operator.attrgetter(path)(self.module)
        return found

    def size(self, dim: Dim) -> int:
        return int(eval(dim.text, dict(_NAMES), self.symbols))

    def shape(self, node: Node) -> list[int]:
        return [self.size(dim) for dim in getattr(node.type, "shape", ())]

    def expression(self, expr: Expr, operands: Sequence[Any]) -> torch.Tensor:
        match expr:
            case Operand(index, dtype):
                return torch.as_tensor(operands[index], dtype=TORCH_DTYPES[dtype])
            case Literal(value, dtype):
                return torch.tensor(value, dtype=TORCH_DTYPES[dtype])
            case Size(dim, dtype):
                return torch.tensor(self.size(dim), dtype=TORCH_DTYPES[dtype])
            case Coordinate(dim, dtype):
                return _indices(self.current[dim], dim, TORCH_DTYPES[dtype])
            case Call("cast", (arg,), dtype):
                return self.expression(arg, operands).to(TORCH_DTYPES[dtype])
            case Call(name, args, dtype):
                parts = (self.expression(x, operands) for x in args)
                values = torch.broadcast_tensors(*parts)  # type: ignore[no-untyped-call]
                function = _OPERATIONS.get(name) or getattr(torch, name)
                result = function(*values)
                assert result.dtype is TORCH_DTYPES[dtype], (name, result.dtype, dtype)
                return result
        raise AssertionError(expr)

    def view(self, index_map: ViewMap, x: torch.Tensor, node: Node) -> torch.Tensor:
        match index_map:
            case Permute(dims):
                return x.permute(dims)
            case Reshape():
                return x.reshape(self.shape(node))
            case Expand():
                return x.expand(self.shape(node))
            case Unsqueeze(dim):
                return x.unsqueeze(dim)
            case Squeeze(dims):
                return x.squeeze(dims)
            case Slice(dim, start, stop, step):
                return x.index_select(dim, torch.arange(self.size(start), self.size(stop), step))
            case Select(dim, index):
                return x.select(dim, self.size(index))
            case Flip(dims):
                return x.flip(dims)
            case Roll(shifts, dims):
                return x.roll(list(map(self.size, shifts)), dims)
            case DiagEmbed():
                return torch.diag_embed(x)
            case Diagonal():
                return torch.diagonal(x, 0, -2, -1)

    def call(self, call: AtenCall) -> Any:
        namespace, name, overload = call.target.split(".")
        operation = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        kwargs = {key: self.argument(value) for key, value in call.kwargs}
        return operation(*(self.argument(arg) for arg in call.args), **kwargs)

    def argument(self, value: Argument) -> Any:
        match value:
            case Ref(name):
                return self.values[name]
            case Code(text):
                return eval(text, {**_NAMES, "device": self.device}, self.symbols)
            case Record("dict", items, keys):
                return dict(zip(keys, map(self.argument, items), strict=True))
            case Record(kind, items):
                return {"list": list, "tuple": tuple}[kind](map(self.argument, items))
            case Instance():
                kwargs = {key: self.argument(item) for key, item in value.kwargs}
                return _class_of(value, self.module)(*map(self.argument, value.args), **kwargs)
            case Text(text):
                return text
            case Dim():
                return self.size(value)
        return value
