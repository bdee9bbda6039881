"""The CUDA text of a plan: library code in use, then one section for each kernel."""

from kernelwright import kernels
from kernelwright.codegen import elementwise, rows, scans, windows
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText
from kernelwright.codegen.spelling import HEADERS
from kernelwright.ir.plan import AnyKernel, Kernel, Plan, RowKernel, ScanKernel, WindowKernel
from kernelwright.ir.types import DType, TensorType


def cuda_source(plan: Plan) -> str:
    """Everything that nvcc compiles: no torch header, entry points `launch_<kernel>`."""
    texts = [kernel_text(kernel) for kernel in plan.kernels]
    files = [name for text in texts for name in text.sources]
    files += sorted({HEADERS[dtype] for dtype in _dtypes(plan) if dtype in HEADERS})
    sections = [text.section for text in texts]
    headers, library = kernels.in_use("\n".join(sections), *files, "math.cuh")
    return TEMPLATES.get_template("kernels.cu.jinja").render(
        headers=headers, library=library, sections=sections
    )


def kernel_text(kernel: AnyKernel) -> KernelText:
    """The text of one kernel, whatever its family."""
    match kernel:
        case Kernel():
            return elementwise.write(kernel)
        case RowKernel():
            return rows.write(kernel)
        case ScanKernel():
            return scans.write(kernel)
        case WindowKernel():
            return windows.write(kernel)


def _dtypes(plan: Plan) -> set[DType]:
    types = [kind for kernel in plan.kernels for kind in (*kernel.inputs, *kernel.outputs)]
    return {kind.dtype for kind in types if isinstance(kind, TensorType)}
