"""Native calls of an emitted file in PyTorch's language of schemas."""

from kernelwright.codegen.families import asks_for_tf32
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import (
    Kernel,
    sizes_used,
)
from kernelwright.ir.program import (
    Program,
    Segment,
    inputs_by_kind,
)
from kernelwright.ir.types import DType, ScalarType, TensorType, ValueType


def operators(program: Program) -> dict[str, str]:
    """Native calls by name, with their arguments in PyTorch's language of schemas."""
    found = {f"launch_{kernel.name}": _launch_schema(kernel) for kernel in program.called}
    for segment in program.segments:
        found[f"launch_{segment.name}"] = _segment_schema(segment, program.plan.graph)
    return found


def _launch_schema(kernel: Kernel) -> str:
    """Arguments of one launch; only results are written to."""
    arguments = [f"Tensor(a{at}!) out{at}" for at, _ in enumerate(kernel.outputs)]
    for at, kind in enumerate(kernel.inputs):
        arguments.append(f"{_schema_type(kind)} in{at}")
    arguments += [f"SymInt size{at}" for at, _ in enumerate(sizes_used(kernel))]
    arguments += ["bool is_measured"] * asks_for_tf32(kernel)
    return ", ".join(arguments)


def _segment_schema(segment: Segment, graph: Graph) -> str:
    """Arguments of a segment: lists, since an operator has at most 64 arguments."""
    tensors, reals, integers = inputs_by_kind(segment, graph)
    arguments = ["Tensor[] inputs"] * bool(tensors) + ["float[] reals"] * bool(reals)
    arguments += ["SymInt[] integers"] * bool(integers or segment.sizes)
    arguments += ["Tensor[] parameters"] * bool(segment.kept)
    return ", ".join(["Tensor(a!)[] results", *arguments])


def _schema_type(kind: ValueType) -> str:
    match kind:
        case TensorType():
            return "Tensor"
        case ScalarType(DType.F64):
            return "float"
    return "SymInt"
