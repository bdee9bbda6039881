"""Pointwise kernels as CUDA text: a functor, and what runs it."""

from dataclasses import asdict, dataclass

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.functor import elementwise_fields
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import one_for_each_line


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
    is_large: bool = False
    """Whether the caches do not keep the result."""


_LARGE_BYTES = 32 << 20
"""Bytes of a result that the second-level cache does not keep beside what it was made of."""


def _way(kernel: Kernel) -> _Way:
    if kernel.reads_transposed:
        return _Way(
            template="TiledPointwise",
            source="pointwise_tiles.cuh",
            more="tiled",
            why="In tiles, where an operand lies along another dimension than the result",
            is_large=kernel.output.bytes_hint >= _LARGE_BYTES,
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


def emit(kernel: Kernel) -> KernelText:
    """The text of a kernel that computes an expression for each element of its result."""
    way = _way(kernel)
    fields = elementwise_fields(kernel, 0)
    section = TEMPLATES.get_template("pointwise.cu.jinja").render(**fields, **asdict(way))
    return KernelText(section=section, sources=(way.source,), has_workspace=False)


POINTWISE = Writer(emit=emit)
