"""Bytes and FLOPs that a plan must spend, and the time the card cannot beat."""

from dataclasses import dataclass

from kernelwright.capture.work import flops_of_call
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Gather, Input, Parameter, View
from kernelwright.ir.plan import Einsum, Kernel, Launch, Plan, TorchCall
from kernelwright.ir.types import DType, TensorType, TupleType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of
from kernelwright.schedule.gemm_work import PRODUCT_UNITS, contraction_flops


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


def cost_of_kernel(kernel: Kernel) -> Cost:
    """Bytes and FLOPs of one launch."""
    size = sum(_bytes(kind) for kind in kernel.inputs) + sum(it.bytes_hint for it in kernel.outputs)
    work = family_of(kernel).cost(kernel)
    size -= work.unread
    units = _UNITS.get(kernel.outputs[0].dtype, _CUDA_CORES) + work.units
    return Cost(bytes=size, flops=work.flops, units=units)


_CUDA_CORES: tuple[str, ...] = ("fp32_simt",)
_UNITS: dict[DType, tuple[str, ...]] = {DType.F64: ("fp64_simt",)}


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
                flops += contraction_flops(contract, factors, kind)
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
        products = family_of(kernel).cost(kernel).products
        if products is not None:
            flops += products
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
            return (*_CUDA_CORES, *PRODUCT_UNITS[DType.F32], "tf32")
        case TensorType(dtype=dtype):
            return _UNITS.get(dtype, _CUDA_CORES) + PRODUCT_UNITS.get(dtype, ())
    return _CUDA_CORES


def _bytes_read(source: Node, graph: Graph) -> int:
    """Bytes of a value that its readers ask for, each element once a reader."""
    total = 0
    for name in graph.users()[source.name]:
        node = graph[name]
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
