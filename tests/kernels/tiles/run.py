"""Child of test_tiles.py: one tile on the emulator, in some of the ways to read, against float64.

Arguments: the tile's members as text; pairs of ways, and the cases (batch sizes, m, k, n) as JSON.
Prints one JSON object: of each pair of ways that it admits the greatest error, and the cases.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from torch.utils import cpp_extension

from kernelwright import kernels
from kernelwright.emulator import Session
from kernelwright.program.abi import pack

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT.contiguous().mT,
    # Neighbours along the last dimension are not neighbours in memory.
    "every other": lambda tensor: torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2],
    # Rows begin one element past an aligned address, and are one element longer.
    "misaligned": lambda tensor: torch.nn.functional.pad(tensor, (1, 0))[..., 1:],
    # The first of the batch lies between rows and columns.
    "rows apart": lambda tensor: tensor.transpose(0, -2).contiguous().transpose(0, -2),
}
MAJORS = ("K", "MN", "NONE")
SCALE = 0.5


def build(members: str, ways: list[list[str]]) -> ctypes.CDLL:
    """The entry point of tiles.cu."""
    text = (Path(__file__).parent / "tiles.cu").read_text().replace("CONFIG", members)
    wanted = " || ".join(f"(L == {left} && R == {right})" for left, right in ways)
    text = text.replace("return WAYS", f"return {wanted}")
    name = "tiles_" + "".join(letter if letter.isdigit() else "_" for letter in members)
    cpp_extension.load_inline(
        name=name,
        cpp_sources="",
        cuda_sources=kernels.inline("gemm_simt.cuh", "gemm_launch.cuh") + text,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,  # PyTorch's take ten times as long as the kernel
    )
    return ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if name in path))


def multiply(
    library: ctypes.CDLL, ways: tuple[int, int], *inputs: torch.Tensor
) -> tuple[int, torch.Tensor]:
    """Zero and SCALE * lhs @ rhs + bias, or a negative status where no kernel takes them."""
    lhs, rhs, _ = inputs
    batch = torch.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    out = torch.empty((*batch, lhs.shape[-2], rhs.shape[-1]), device="cuda")
    status = library.tile_launch(pack([*ways, SCALE, out, *inputs]))
    assert status <= 0, f"CUDA error {status} of {list(lhs.shape)} @ {list(rhs.shape)}"
    return status, out


def error(result: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> float:
    """Greatest error, over the sum of the absolute values of all terms."""
    lhs, rhs, bias = (tensor.double() for tensor in inputs)
    exact = SCALE * (lhs @ rhs) + bias
    size = lhs.abs() @ rhs.abs() + bias.abs()
    same = (result.double() == exact) | (result.isnan() & exact.isnan())
    distance = torch.where(same, 0.0, (result.double() - exact).abs() / size)
    distance = distance.nan_to_num(nan=torch.inf)  # only one of both is NaN or infinite
    return distance.max().item() if distance.numel() else 0.0


def draw(case: tuple[list[int], int, int, int]) -> tuple[torch.Tensor, ...]:
    """The factors, and a bias; where K is 45, with infinity and NaN."""
    batch, m, k, n = case
    lhs = torch.rand(*batch, m, k) - 0.3
    rhs = torch.rand(*batch[1:], k, n) - 0.3
    if k == 45:
        lhs[..., 0, k - 1] = torch.inf
        rhs[..., 5, n - 1] = torch.nan
        rhs[..., k - 1, 0] = -torch.inf
    return lhs, rhs, torch.rand(n)


def main() -> None:
    members, asked, cases = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    worst: dict[str, float] = {}
    admitted: dict[str, list[list[object]]] = {}
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = build(members, asked)
        for case, left, right in product(cases, LAYOUTS, LAYOUTS):
            if case[0] or "rows apart" not in (left, right):
                lhs, rhs, bias = draw(case)
                inputs = (LAYOUTS[left](lhs), LAYOUTS[right](rhs), bias)
                for names in asked:
                    ways = MAJORS.index(names[0]), MAJORS.index(names[1])
                    status, result = multiply(library, ways, *inputs)
                    name = " ".join(names)
                    if status == 0:
                        admitted.setdefault(name, []).append(case)
                        worst[name] = max(worst.get(name, 0.0), error(result, inputs))
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "admitted": admitted, "findings": findings}))


if __name__ == "__main__":
    main()
