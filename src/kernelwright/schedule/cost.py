"""Bytes and FLOPs that a plan must spend, and the time the card cannot beat."""

from dataclasses import dataclass
from math import prod

from kernelwright.capture.work import flops_of_call
from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Contract, Gather, Graph, Input, Node, Parameter, View
from kernelwright.ir.plan import (
    AnyKernel,
    Einsum,
    Kernel,
    Launch,
    Plan,
    RowKernel,
    ScanKernel,
    Side,
    TorchCall,
    Triangle,
    WindowKernel,
)
from kernelwright.ir.types import Dim, DType, TensorType, TupleType, ValueType
from kernelwright.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Least work at the captured sizes: every input read once, every result written once."""

    bytes: int
    flops: int
    """Multiply-adds count two; a pointwise operation counts one."""
    units: tuple[str, ...]
    """Those that can do the FLOPs, keys of `Machine.flops`; a card may lack some."""

    def arithmetic(self, machine: Machine) -> str:
        """The fastest of the units on `machine`."""
        return max((u for u in self.units if u in machine.flops), key=machine.flops.__getitem__)

    def floor_seconds(self, machine: Machine) -> float:
        """The larger of the memory time and the arithmetic time on `machine`."""
        return machine.floor_seconds(self.bytes, self.flops, self.arithmetic(machine))


def cost_of_kernel(kernel: AnyKernel) -> Cost:
    """Bytes and FLOPs of one launch."""
    size = sum(_bytes(kind) for kind in kernel.inputs) + sum(it.bytes_hint for it in kernel.outputs)
    units = _UNITS.get(kernel.outputs[0].dtype, _CUDA_CORES)
    flops = _pointwise_flops(kernel)
    if isinstance(kernel, Kernel) and kernel.anchor is not None:
        flops += round(
            contraction_flops(kernel.anchor, kernel.inputs)
            * kept_share(kernel.triangle, kernel.output)
        )
        units += _PRODUCT_UNITS.get(_factor(kernel).dtype, ())
    return Cost(bytes=size, flops=flops, units=units)


def _pointwise_flops(kernel: AnyKernel) -> int:
    """Operations on elements; adding one to a total counts as one, too."""
    match kernel:
        case Kernel(epilogue=epilogue, output=output):
            return operations(epilogue) * output.numel_hint
        case RowKernel(program=program):
            folds = sum(operations(fold.value) + 1 for fold in program.folds)
            count = folds * _numel(program.shape)
            for result in program.results:
                count += operations(result.value) * _numel(program.result_shape(result.extent))
            return count
        case ScanKernel(output=output):
            return output.numel_hint * (
                operations(kernel.prologue) + operations(kernel.epilogue) + 1
            )
        case WindowKernel(output=output):
            taps = prod(kernel.window.size)
            return output.numel_hint * (
                taps * (operations(kernel.prologue) + 1) + operations(kernel.epilogue)
            )


def _numel(shape: tuple[Dim, ...]) -> int:
    return prod(dim.hint for dim in shape)


_CUDA_CORES: tuple[str, ...] = ("fp32_simt",)
_UNITS: dict[DType, tuple[str, ...]] = {DType.F64: ("fp64_simt",)}
_PRODUCT_UNITS: dict[DType, tuple[str, ...]] = {
    DType.F32: ("fp16x3",),
    DType.F16: ("fp16",),
    DType.BF16: ("bf16",),
}


def _factor(kernel: Kernel) -> TensorType:
    factor = kernel.inputs[0]
    assert isinstance(factor, TensorType)
    return factor


def kept_share(triangle: Triangle | None, output: TensorType) -> float:
    """Share of a result's elements that the epilogue does not set to zero anyway."""
    if triangle is None:
        return 1.0
    rows, columns = (dim.hint for dim in output.shape[-2:])
    # Row r keeps the columns from r + diagonal on, or those up to it.
    before = [min(max(row + triangle.diagonal, 0), columns) for row in range(rows)]
    upto = [min(max(row + triangle.diagonal + 1, 0), columns) for row in range(rows)]
    kept = rows * columns - sum(before) if triangle.kept is Side.UPPER else sum(upto)
    return kept / max(1, rows * columns)


def contraction_flops(contract: Contract, inputs: tuple[ValueType, ...]) -> int:
    """Two for each combination of the contraction's letters."""
    sizes: dict[str, int] = {}
    for labels, kind in zip((contract.lhs, contract.rhs), inputs, strict=False):
        assert isinstance(kind, TensorType)
        sizes.update(zip(labels, (dim.hint for dim in kind.shape), strict=True))
    product = 2
    for size in sizes.values():
        product *= size
    return product


def cost_of_plan(plan: Plan) -> Cost:
    """What the steps read and write, and what our kernels and PyTorch's calls compute."""
    types = {node.name: node.type for node in plan.graph.nodes}
    size = flops = 0
    units: dict[str, None] = {}
    for step in plan.steps:
        match step:
            case Launch(kernel=kernel):
                cost = cost_of_kernel(kernel)
                size, flops = size + cost.bytes, flops + cost.flops
                units |= dict.fromkeys(cost.units)
            case TorchCall(call=call, type=kind):
                size += _bytes(kind) + sum(_bytes(types[name]) for name in call.refs)
                work = flops_of_call(call, types, kind)
                flops += work
                units |= dict.fromkeys(_library_units(kind) if work else ())
            case Einsum(contract=contract, inputs=inputs, type=kind):
                factors = tuple(types[name] for name in inputs)
                size += _bytes(kind) + sum(map(_bytes, factors))
                flops += contraction_flops(contract, factors)
                units |= dict.fromkeys(_library_units(kind))
    return Cost(bytes=size, flops=flops, units=tuple(units) or _CUDA_CORES)


def least_cost(plan: Plan) -> Cost:
    """What no program for the rewritten graph gets around.

    Arguments and parameters are read once, as far as they are used; what is returned or updated is
    written once; products that are ours are multiplied.
    """
    leaves = [node for node in plan.graph.nodes if isinstance(node.kind, Input | Parameter)]
    size = sum(min(_bytes(leaf.type), _bytes_read(leaf, plan.graph)) for leaf in leaves)
    shown = {_shown(name, plan.graph) for name in plan.graph.results}
    written = shown - {leaf.name for leaf in leaves}
    size += sum(_bytes(plan.graph[name].type) for name in written)
    flops = 0
    units: dict[str, None] = {}
    for kernel in plan.kernels:
        if isinstance(kernel, Kernel) and kernel.anchor is not None:
            share = kept_share(kernel.triangle, kernel.output)
            flops += round(contraction_flops(kernel.anchor, kernel.inputs) * share)
            units |= dict.fromkeys(cost_of_kernel(kernel).units)
    return Cost(bytes=size, flops=flops, units=tuple(units) or _CUDA_CORES)


def _library_units(result: ValueType) -> tuple[str, ...]:
    """Units that a product of the library may run on, by the type of its (first) result.

    In float32 cuDNN takes TF32 for convolutions and recurrent layers; a product at float32's own
    accuracy is no faster.
    """
    match result:
        case TupleType(items=(first, *_)):
            return _library_units(first)
        case TensorType(dtype=DType.F32):
            return (*_CUDA_CORES, *_PRODUCT_UNITS[DType.F32], "tf32")
        case TensorType(dtype=dtype):
            return _UNITS.get(dtype, _CUDA_CORES) + _PRODUCT_UNITS.get(dtype, ())
    return _CUDA_CORES


def _bytes_read(source: Node, graph: Graph) -> int:
    """Bytes of a value that its readers ask for, each element once a reader."""
    total = 0
    for node in graph.nodes:
        if source.name not in node.inputs:
            continue
        match node.kind:
            case View():
                total += min(_bytes(node.type), _bytes_read(node, graph))
            case Gather() if node.inputs[0] == source.name:
                total += _bytes(node.type)
            case _:
                total += _bytes(source.type)
    return total


def _shown(name: str, graph: Graph) -> str:
    """The tensor that a returned view shows: views are not written."""
    node = graph[name]
    while isinstance(node.kind, View):
        node = graph[node.inputs[0]]
    return node.name


def _bytes(kind: ValueType) -> int:
    match kind:
        case TensorType():
            return kind.bytes_hint
        case TupleType(items):
            return sum(_bytes(item) for item in items)
    return 0
