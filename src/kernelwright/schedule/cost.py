"""Bytes and FLOPs that a plan must spend, and the time the card cannot beat."""

from dataclasses import dataclass

from kernelwright.ir.expr import operations
from kernelwright.ir.graph import Contract
from kernelwright.ir.plan import Einsum, Kernel, Launch, Plan, TorchCall
from kernelwright.ir.types import DType, TensorType, TupleType, ValueType
from kernelwright.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Least work at the captured sizes: every input read once, every result written once."""

    bytes: int
    flops: int
    """Multiply-adds count two; a pointwise operation counts one."""
    arithmetic: str
    """The unit that does the FLOPs, a key of `Machine.flops`."""

    def floor_seconds(self, machine: Machine) -> float:
        """The larger of the memory time and the arithmetic time on `machine`."""
        return machine.floor_seconds(self.bytes, self.flops, self.arithmetic)


def cost_of_kernel(kernel: Kernel) -> Cost:
    """Bytes and FLOPs of one launch."""
    size = sum(_bytes(kind) for kind in kernel.inputs) + kernel.output.bytes_hint
    flops = operations(kernel.epilogue) * kernel.output.numel_hint
    if kernel.anchor is not None:
        flops += contraction_flops(kernel.anchor, kernel.inputs)
    return Cost(bytes=size, flops=flops, arithmetic=_unit(kernel.output.dtype))


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
    """Sum over our kernels; calls left to PyTorch count their results' bytes only."""
    size = flops = 0
    unit = "fp32_simt"
    for step in plan.steps:
        match step:
            case Launch(kernel=kernel):
                cost = cost_of_kernel(kernel)
                size, flops, unit = size + cost.bytes, flops + cost.flops, cost.arithmetic
            case TorchCall(type=kind) | Einsum(type=kind):
                size += _bytes(kind)
    return Cost(bytes=size, flops=flops, arithmetic=unit)


def _bytes(kind: ValueType) -> int:
    match kind:
        case TensorType():
            return kind.bytes_hint
        case TupleType(items):
            return sum(_bytes(item) for item in items)
    return 0


def _unit(dtype: DType) -> str:
    return "fp64_simt" if dtype is DType.F64 else "fp32_simt"
