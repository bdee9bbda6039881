"""Gathers as CUDA text: two kernels, for slices of whole vectors and for any others."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.kinds import Gather
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that copies the slices that integers pick."""
    index = kernel.inputs[1]
    assert isinstance(index, TensorType)
    section = TEMPLATES.get_template("gather.cu.jinja").render(
        **heading(kernel),
        title=camel_case(kernel.name),
        stored=STORED[kernel.output.dtype],
        index=STORED[index.dtype],
        dim=kernel.anchored(Gather).dim,
    )
    return KernelText(section=section, sources=("gather.cuh",), has_workspace=False)


def _picks(kernel: Kernel) -> dict[int, int]:
    source = kernel.inputs[0]
    assert isinstance(source, TensorType)
    return {1: source.shape[kernel.anchored(Gather).dim].hint}


GATHER = Writer(emit=emit, picks=_picks)
