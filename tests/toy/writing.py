"""Row of a family for the table of codegen/families: the text of a kernel that flips a line."""

from kernelwright.codegen.families.writer import Writer
from kernelwright.codegen.kernel_text import KernelText
from kernelwright.codegen.spelling import STORED
from kernelwright.ir.plan import Kernel

_SECTION = """// ---- NAME ----
namespace {

__global__ void NAME_kernel(ELEMENT* out, Tensor line) { read_backwards(out, line); }

}  // namespace

extern "C" int launch_NAME(const int64_t* words) {
  Arguments arguments(words);
  const Tensor out = arguments.tensor();
  const Tensor line = arguments.tensor();
  if (arguments.status() != cudaSuccess) return arguments.status();
  if (line.sizes[0] == 0) return cudaSuccess;
  const unsigned blocks = static_cast<unsigned>((line.sizes[0] + THREADS - 1) / THREADS);
  NAME_kernel<<<blocks, THREADS, 0, arguments.stream()>>>(static_cast<ELEMENT*>(out.data), line);
  return cudaGetLastError();
}
"""


def _emit(kernel: Kernel) -> KernelText:
    fields = {
        "NAME": kernel.name,
        "ELEMENT": STORED[kernel.output.dtype],
        "THREADS": str(kernel.config.threads),
    }
    section = _SECTION
    for name, value in fields.items():
        section = section.replace(name, value)
    return KernelText(section=section, sources=("flip.cuh",), has_workspace=False)


FLIP = Writer(emit=_emit)
