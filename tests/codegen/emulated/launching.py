"""Runs the text of one kernel on the emulator, without a plan around it."""

import ctypes
import hashlib
from collections.abc import Sequence

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.codegen.kernel_text import KernelText
from kernelwright.codegen.spelling import HEADERS
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType
from kernelwright.program.abi import Argument, pack


def full_text(kernel: Kernel, text: KernelText) -> str:
    """What nvcc would compile."""
    types = [kind for kind in (*kernel.inputs, *kernel.outputs) if isinstance(kind, TensorType)]
    files = sorted({HEADERS[kind.dtype] for kind in types if kind.dtype in HEADERS})
    headers, library = kernels.in_use(text.section, *text.sources, *files, "math.cuh")
    includes = "".join(f"#include {header}\n" for header in headers)
    return f"{includes}\nnamespace {{\n\n{library}\n}}  // namespace\n\n{text.section}"


class Library:
    """One kernel, built in the session that is open."""

    def __init__(self, kernel: Kernel, text: KernelText) -> None:
        source = full_text(kernel, text)
        name = f"{kernel.name}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
        cpp_extension.load_inline(
            name=name,
            cpp_sources="",
            cuda_sources=source,
            functions=None,
            is_python_module=False,
            no_implicit_headers=True,  # PyTorch's take ten times as long as the kernel
        )
        path = next(path for path in torch.ops.loaded_libraries if name in path)
        library = ctypes.CDLL(path)
        self._launch = getattr(library, f"launch_{kernel.name}")
        self._workspace = getattr(library, f"workspace_{kernel.name}", None)
        if self._workspace is not None:
            self._workspace.restype = ctypes.c_int64

    def __call__(self, out: torch.Tensor, inputs: Sequence[Argument]) -> int:
        """Fill `out`; returns the bytes of workspace that it took."""
        arguments = (out, *inputs)
        size = self._workspace(pack(arguments)) if self._workspace is not None else 0
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        status = self._launch(pack(arguments, workspace=workspace.data_ptr()))
        assert status == 0, f"CUDA error {status}"
        return size
