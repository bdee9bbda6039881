"""Child of test_plain.py: the short product on the emulator, in all layouts, against float64.

Arguments: the factors' type in CUDA, and the cases (batch sizes, m, k, n) as JSON. Prints one JSON
object: the greatest error of each case, and the findings.
"""

import ctypes
import json
import sys
from pathlib import Path

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import pack

sys.path.insert(0, str(Path(__file__).parents[1] / "tiles"))
from run import LAYOUTS, SCALE, draw, error

DTYPES = {"float": torch.float32, "__half": torch.float16, "__nv_bfloat16": torch.bfloat16}


def build(type_: str) -> ctypes.CDLL:
    """The entry point of plain.cu."""
    text = (Path(__file__).parent / "plain.cu").read_text().replace("TYPE", type_)
    library = kernels.inline("gemm_plain.cuh", "gemm_launch.cuh", "half.cuh", "bfloat16.cuh")
    cpp_extension.load_inline(
        name=f"plain_{type_}",
        cpp_sources="",
        cuda_sources=library + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,
    )
    paths = (path for path in torch.ops.loaded_libraries if f"plain_{type_}" in path)
    return ctypes.CDLL(next(paths))


def multiply(library: ctypes.CDLL, *inputs: torch.Tensor) -> torch.Tensor:
    """SCALE * lhs @ rhs + bias."""
    lhs, rhs, _ = inputs
    batch = torch.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    out = torch.empty((*batch, lhs.shape[-2], rhs.shape[-1]), device="cuda")
    status = library.plain_launch(pack([SCALE, out, *inputs]))
    assert status == 0, f"CUDA error {status} of {list(lhs.shape)} @ {list(rhs.shape)}"
    return out


def main() -> None:
    type_, cases = sys.argv[1], json.loads(sys.argv[2])
    worst: dict[str, float] = {}
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = build(type_)
        for turn, case in enumerate(cases):
            # A side is loaded by code that does not know how the other one lies.
            ways = [name for name in LAYOUTS if case[0] or name != "rows apart"]
            for left, right in zip(
                ways, [*ways[turn % len(ways) :], *ways[: turn % len(ways)]], strict=True
            ):
                lhs, rhs, bias = draw(case)
                factors = (lhs.to(DTYPES[type_]), rhs.to(DTYPES[type_]))
                inputs = (LAYOUTS[left](factors[0]), LAYOUTS[right](factors[1]), bias)
                found = error(multiply(library, *inputs), inputs)
                worst[str(case)] = max(worst.get(str(case), 0.0), found)
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "findings": findings}))


if __name__ == "__main__":
    main()
