"""The CUDA text of a plan: the device library in use, and one section for each kernel."""

from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright import kernels
from kernelwright.codegen.families import writer_of
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText
from kernelwright.codegen.segments import segment_text
from kernelwright.codegen.spelling import HEADERS
from kernelwright.ir.plan import Kernel, Plan
from kernelwright.ir.program import Program
from kernelwright.ir.types import DType, TensorType
from kernelwright.program import program_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaText:
    """What nvcc compiles, in two parts; no torch header."""

    library: str
    """Includes, and the hand-written declarations that the kernels use."""
    kernels: str
    """The plan's kernels with their entry points, `launch_<kernel>`."""
    with_workspace: frozenset[str] = frozenset()
    """Kernels and segments whose launch may need device memory for itself."""

    @property
    def whole(self) -> str:
        """One text that compiles."""
        return f"{self.library}\n{self.kernels}"


def cuda_source(plan: Plan) -> str:
    """Everything that nvcc compiles."""
    return cuda_text(program_of(plan)).whole


def cuda_text(program: Program) -> CudaText:
    """The program's kernels and segments, and of the device library what they use."""
    plan = program.plan
    by_name = {kernel.name: kernel_text(kernel) for kernel in plan.kernels_to_write}
    of_kernels = frozenset(name for name, text in by_name.items() if text.has_workspace)
    for segment in program.segments:
        by_name[segment.name] = segment_text(segment, plan.graph, of_kernels)
    texts = by_name.values()
    files = [name for text in texts for name in text.sources]
    files += sorted({HEADERS[dtype] for dtype in _dtypes(plan) if dtype in HEADERS})
    sections = [text.section for text in texts]
    by = kernels.User(code="\n".join(sections), asserted=_asserted(texts))
    headers, library = kernels.in_use(by, *files, "math.cuh")
    template = TEMPLATES.get_template("library.cu.jinja")
    return CudaText(
        library=template.render(headers=headers, library=library),
        kernels="".join(f"{section}\n" for section in sections),
        with_workspace=frozenset(name for name, text in by_name.items() if text.has_workspace),
    )


def _asserted(texts: Iterable[KernelText]) -> dict[str, bool]:
    """Constants that every kernel which asserts one says the same of."""
    found: dict[str, set[bool]] = {}
    for text in texts:
        for name, value in text.asserted.items():
            found.setdefault(name, set()).add(value)
    return {name: value for name, (value, *more) in found.items() if not more}


def kernel_text(kernel: Kernel) -> KernelText:
    """The text of one kernel, whatever its family."""
    return writer_of(kernel).emit(kernel)


def _dtypes(plan: Plan) -> set[DType]:
    types = [kind for kernel in plan.kernels for kind in (*kernel.inputs, *kernel.outputs)]
    return {kind.dtype for kind in types if isinstance(kind, TensorType)}
