"""Meaning of a Graph: each node computed in plain PyTorch, one after the other."""

import inspect
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
from kernelwright.ir.kind_values import (
    contracted,
    convolved,
    gathered,
    laid_out,
    looped,
    pooled,
    reduced,
    reduced_tile,
    scanned,
)
from kernelwright.ir.kinds import (
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
    Permute,
    Pointwise,
    Project,
    Reduce,
    Relayout,
    Reshape,
    Roll,
    Scan,
    Select,
    Slice,
    Squeeze,
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


def _indices(count: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """0 to `count` - 1 along dimension `dim`, which is negative."""
    return torch.arange(count, dtype=dtype).reshape(-1, *[1] * (-dim - 1))


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
