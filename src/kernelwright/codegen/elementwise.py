"""Pointwise kernels and products as CUDA text: a functor, and what runs it."""

from dataclasses import asdict, dataclass

from kernelwright.codegen.expressions import operand_name
from kernelwright.codegen.functor import functor
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText, heading, read_inputs
from kernelwright.codegen.products import product_fields, tuned
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType, one_for_each_line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a pointwise kernel walks its operands."""

    template: str = "Pointwise"
    source: str = "pointwise.cuh"
    more: str = ""
    """The way that it has besides what all have."""
    why: str = ""
    ones: int = 0
    """A bit for each tensor that it reads, with one element for a line of the result."""


def _way(kernel: Kernel) -> _Way:
    if kernel.turned:
        return _Way(
            template="TiledPointwise",
            source="pointwise_tiles.cuh",
            more="tiled",
            why="In tiles, where an operand lies along another dimension than the result",
        )
    ones = one_for_each_line(kernel.inputs, kernel.output)
    if ones == 0:
        return _Way()
    return _Way(
        template="LinePointwise",
        source="pointwise_lines.cuh",
        more="lines",
        why="Lines, and one element for each of them",
        ones=ones,
    )


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
    way = _way(kernel)
    section = TEMPLATES.get_template(f"{kernel.family}.cu.jinja").render(
        **heading(kernel),
        functor=item,
        types=", ".join(STORED[it] for it in (kernel.output.dtype, *(it for _, it in elements))),
        arguments=read_inputs(kernel, tensors, item.members),
        tensors=tensors,
        **(asdict(way) if kernel.anchor is None else product_fields(kernel)),
    )
    if kernel.anchor is None:
        return KernelText(section=section, sources=(way.source,), has_workspace=False)
    own = tuned(kernel)
    sources = (*own.sources, "gemm_launch.cuh")
    return KernelText(section=section, sources=sources, has_workspace=own.has_workspace)
