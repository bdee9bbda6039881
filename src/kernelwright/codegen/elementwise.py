"""Pointwise kernels and products as CUDA text: a functor, and what runs it."""

from kernelwright.codegen.expressions import operand_name
from kernelwright.codegen.functor import functor
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.products import product_fields, tuned
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType


def write(kernel: Kernel) -> KernelText:
    """The text of a kernel that computes an expression for each element of its result."""
    tiles = 0 if kernel.anchor is None else 2
    item = functor(kernel, tiles)
    elements = [
        (operand_name(index, tiles), kind.dtype)
        for index, kind in enumerate(kernel.inputs)
        if index >= tiles and isinstance(kind, TensorType)
    ]
    tensors = ["lhs", "rhs"][:tiles] + [name for name, _ in elements]
    section = TEMPLATES.get_template(f"{kernel.family}.cu.jinja").render(
        **heading(kernel),
        functor=item,
        types=", ".join(STORED[it] for it in (kernel.output.dtype, *(it for _, it in elements))),
        arguments=read_inputs(kernel, tensors, item.members),
        tensors=tensors,
        **({"turned": kernel.turned} if kernel.anchor is None else product_fields(kernel)),
    )
    if kernel.anchor is None:
        own_sources = ("pointwise_tiles.cuh" if kernel.turned else "pointwise.cuh",)
        return KernelText(section=section, sources=own_sources, has_workspace=False)
    own = tuned(kernel)
    sources = (*own.sources, "gemm_launch.cuh")
    return KernelText(section=section, sources=sources, has_workspace=own.has_workspace)
