"""Child of test_rows.py: row kernels on the emulator, against PyTorch in float64.

Argument: JSON list of runs, each a case, its element type, the reduced dims, shapes, layouts and
the fields of the configuration. Prints one JSON object: the greatest error of each, and findings.
"""

import ctypes
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from row_programs import CASES, Case, operand_shape
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.plan import Kernel, sizes_used
from kernelwright.ir.row_configs import (
    BlockRows,
    ColumnPartRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.types import DType
from kernelwright.program.abi import pack

TORCH = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I64: torch.int64,
    DType.BOOL: torch.bool,
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    "every other": lambda tensor: torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2],
    # The first element is one element past an aligned address.
    "misaligned": lambda tensor: torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])[1:].view(
        tensor.shape
    ),
}
SCALE = 0.75


def text_of(kernel: Kernel) -> str:
    text = kernel_text(kernel)
    headers, library = kernels.in_use(
        text.section, *text.sources, "math.cuh", "half.cuh", "bfloat16.cuh"
    )
    includes = "".join(f"#include {header}\n" for header in headers)
    return f"{includes}\nnamespace {{\n\n{library}\n}}  // namespace\n\n{text.section}"


def row_config(fields: dict[str, Any]) -> RowConfig:
    """Two multiprocessors, and the tuned variant of these fields, if any, which may `streams`."""
    families = {
        "in_registers": HeldRows,
        "in_parts": ColumnPartRows,
        "ring": GridRows,
        "stages": RingRows,
        "split": ColumnRows,
        "lanes": ShortRows,
        "holds": BlockRows,
        "resident": PartRows,
    }
    family = next((each for field, each in families.items() if field in fields), None)
    flags = ("in_registers", "in_parts", "streams")
    values = {name: value for name, value in fields.items() if name not in flags}
    tuned = None if family is None else family(**values)
    return RowConfig(multiprocessors=2, tuned=tuned, streams="streams" in fields)


def build(kernel: Kernel, name: str) -> ctypes.CDLL:
    cpp_extension.load_inline(
        name=name,
        cpp_sources="",
        cuda_sources=text_of(kernel),
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,  # PyTorch's take ten times as long as the kernel
    )
    library = ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if name in path))
    getattr(library, f"workspace_{kernel.name}").restype = ctypes.c_int64
    return library


def launch(library: ctypes.CDLL, kernel: Kernel, shape: list[int], inputs: list[Any]) -> Any:
    one = [1 if at in kernel.anchor.dims else size for at, size in enumerate(shape)]
    outputs = [
        torch.empty(
            shape if result.extent == "element" else one, dtype=TORCH[out.dtype], device="cuda"
        )
        for result, out in zip(kernel.anchor.results, kernel.outputs, strict=True)
    ]
    sizes = [math.prod(shape[dim] for dim in kernel.anchor.dims)] * len(sizes_used(kernel))
    arguments = [*outputs, *inputs, SCALE, *sizes]

    def call(function: str, workspace: int) -> int:
        packed = pack(arguments, workspace=workspace)
        return int(getattr(library, f"{function}_{kernel.name}")(packed))

    workspace = torch.empty(call("workspace", 0), dtype=torch.uint8, device="cuda")
    status = call("launch", workspace.data_ptr())
    assert status == 0, f"CUDA error {status} of {shape}"
    return outputs


def error(case: Case, dims: tuple[int, ...], inputs: list[Any], outputs: list[Any]) -> float:
    wide = [each.double() if each.is_floating_point() else each for each in inputs]
    worst = 0.0
    for exact, found in zip(case.reference(dims, SCALE, *wide), outputs, strict=True):
        assert exact.shape == found.shape, (exact.shape, found.shape)
        exact, found = exact.double(), found.double()
        same = (exact == found) | (exact.isnan() & found.isnan())
        difference = torch.where(same, 0.0, (exact - found).abs() / (1 + exact.abs()))
        if difference.numel():
            worst = max(worst, difference.nan_to_num(nan=math.inf).max().item())
    return worst


def fill(case: Case, kind: str, size: tuple[int, ...], columns: int, special: str) -> torch.Tensor:
    if kind.startswith("i64"):
        return torch.randint(0, max(columns, 1), size)
    tensor = torch.rand(size).to(TORCH[case.dtype])
    if case.name == "sums":
        tensor = tensor + 0.5 if case.dtype is not DType.I64 else (tensor * 3).long()
    if special and tensor.numel():
        tensor.view(-1)[tensor.numel() // 2] = float(special)
    return tensor


def main() -> None:
    worst: dict[str, float] = {}
    with Session(order_seed=1, threads=1) as session:
        for number, run in enumerate(json.loads(sys.argv[1])):
            dtype = [DType[run["dtype"]]] if run.get("dtype") else []
            case = CASES[run["case"]](*dtype)
            dims = tuple(run["dims"])
            rank = len(run["shapes"][0])
            static = run["shapes"][0] if run.get("static") else ()
            kernel = case.kernel(rank, dims, row_config(run["config"]), static)
            library = build(kernel, f"rows_{number}_{abs(hash(sys.argv[1]))}")
            for shape in run["shapes"]:
                for layout in run.get("layouts", LAYOUTS):
                    torch.manual_seed(0)
                    inputs = [
                        LAYOUTS[layout](
                            fill(
                                case,
                                kind,
                                operand_shape(kind, shape, dims, 1),
                                shape[-1],
                                run.get("special", ""),
                            )
                        )
                        for kind in case.operands
                    ]
                    outputs = launch(library, kernel, shape, inputs)
                    key = f"{number} {dims} {shape} {layout}"
                    worst[key] = error(case, dims, inputs, outputs)
    print(json.dumps({"worst": worst, "findings": [str(f) for f in session.findings]}))


if __name__ == "__main__":
    main()
