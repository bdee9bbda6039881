"""Copies of many tensors in one launch as CUDA text."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import camel_case
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.plan import Kernel


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that writes tensors in the order of their own dimensions."""
    section = TEMPLATES.get_template("copies.cu.jinja").render(
        **{**heading(kernel), "shapes": f"{kernel.inputs[0]} -> {kernel.outputs[0]}"},
        title=camel_case(kernel.name),
        stored=STORED[kernel.outputs[0].dtype],
        count=len(kernel.outputs),
    )
    return KernelText(section=section, sources=("copies.cuh",), has_workspace=False)


COPIES = Writer(emit=emit)
