"""Child of test_thin.py: thin products on the emulator, against float64.

Arguments: the configuration (factor, rows, row_tiles, columns, step) and the cases (batch sizes, m,
k, n) as JSON. Prints one JSON object: for each case and layout the greatest error and the slices of
K.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import pack

TYPES = {
    "float": ("float", torch.float32),
    "double": ("double", torch.float64),
    "__half": ("float", torch.float16),
    "__nv_bfloat16": ("float", torch.bfloat16),
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT.contiguous().mT,
    # Neighbours along the last dimension are not neighbours in memory.
    "every other": lambda tensor: torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2],
    # Rows begin one element past an aligned address, and are one element longer.
    "misaligned": lambda tensor: torch.nn.functional.pad(tensor, (1, 0))[..., 1:],
}
SCALE = 0.5
SIZES = ("rows", "row_tiles", "columns", "step")


def build(config: dict[str, object]) -> ctypes.CDLL:
    """The entry points of thin.cu."""
    text = (Path(__file__).parent / "thin.cu").read_text()
    sum_type, _ = TYPES[str(config["factor"])]
    tunables = ", ".join(f"{name.upper()} = {config[name]}" for name in SIZES)
    for name, value in (("FACTOR", config["factor"]), ("SUM", sum_type), ("CONFIG", tunables)):
        text = text.replace(name, str(value))
    name = "thin_" + "_".join(map(str, config.values()))
    sources = kernels.inline("gemm_thin.cuh", "gemm_launch.cuh", "half.cuh", "bfloat16.cuh")
    cpp_extension.load_inline(
        name=name,
        cpp_sources="",
        cuda_sources=sources + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,  # PyTorch's take ten times as long as the kernel
    )
    library = ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if name in path))
    library.thin_slices.restype = ctypes.c_int64
    library.thin_workspace.restype = ctypes.c_int64
    return library


def multiply(library: ctypes.CDLL, *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
    """SCALE * lhs @ rhs + bias, and the number of slices that K was cut in."""
    lhs, rhs, _ = inputs
    batch = torch.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    out = torch.empty((*batch, lhs.shape[-2], rhs.shape[-1]), dtype=lhs.dtype, device="cuda")

    def call(name: str, workspace: int) -> int:
        return int(getattr(library, name)(pack([SCALE, out, *inputs], workspace=workspace)))

    workspace = torch.empty(call("thin_workspace", 0), dtype=torch.uint8, device="cuda")
    status = call("thin_launch", workspace.data_ptr())
    assert status == 0, f"CUDA error {status} of {list(lhs.shape)} @ {list(rhs.shape)}"
    return out, call("thin_slices", 0) if out.numel() else 1


def error(result: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> float:
    """Greatest error, over the sum of the absolute values of all terms."""
    lhs, rhs, bias = (tensor.double() for tensor in inputs)
    exact = SCALE * (lhs @ rhs) + bias
    size = lhs.abs() @ rhs.abs() + bias.abs()
    same = (result.double() == exact) | (result.isnan() & exact.isnan())
    distance = torch.where(same, 0.0, (result.double() - exact).abs() / size)
    return distance.max().item() if distance.numel() else 0.0


def draw(
    dtype: torch.dtype, case: tuple[list[int], int, int, int], turn: int
) -> tuple[torch.Tensor, ...]:
    """The factors in two layouts, and a bias; where K is 333, with infinity and NaN."""
    batch, m, k, n = case
    arrange = list(LAYOUTS.values())
    lhs = (torch.rand(*batch, m, k) - 0.3).to(dtype)
    rhs = (torch.rand(*batch[1:], k, n) - 0.3).to(dtype)
    if k == 333:
        lhs[..., 0, k - 1] = torch.inf
        rhs[..., 5, n - 1] = torch.nan
        rhs[..., k - 1, 0] = -torch.inf
    bias = torch.rand(n).to(dtype)
    return arrange[turn](lhs), arrange[(turn * 3 + k) % len(arrange)](rhs), bias


def main() -> None:
    config, cases = map(json.loads, sys.argv[1:])
    _, dtype = TYPES[config["factor"]]
    worst, slices = {}, {}
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = build(config)
        for case in cases:
            for turn, layout in enumerate(LAYOUTS):
                inputs = draw(dtype, case, turn)
                result, cut = multiply(library, *inputs)
                again, _ = multiply(library, *inputs)
                key = f"{case} {layout}"
                assert torch.equal(result.nan_to_num(7.0), again.nan_to_num(7.0)), key
                worst[key] = error(result, inputs)
                slices[key] = cut
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "slices": slices, "findings": findings}))


if __name__ == "__main__":
    main()
