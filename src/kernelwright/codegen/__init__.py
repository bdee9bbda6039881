"""Plan to text: the CUDA kernels and the one Python file around them."""

from kernelwright.codegen.candidate import Candidate, emit, emit_module
from kernelwright.codegen.cuda import cuda_source, kernel_unit, translation_units

__all__ = ["Candidate", "cuda_source", "emit", "emit_module", "kernel_unit", "translation_units"]
