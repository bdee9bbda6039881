"""Child of test_located.py: a pointwise kernel that knows where its elements stand, on the
emulator. Prints one JSON object."""

import json
from collections.abc import Callable

import torch
from launching import Library

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.configs import PointwiseConfig
from kernelwright.ir.expr import Call, Coordinate, Literal, Operand
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, TensorType

# Rows of whole vectors, rows that end inside of vectors, rows shorter than one; one matrix and
# none; one row, one column, one element.
SHAPES = [
    (3, 5, 8),
    (3, 5, 6),
    (4, 7, 3),
    (2, 2, 9, 64),
    (33, 65),
    (0, 4),
    (1, 12),
    (12, 1),
    (1, 1),
]

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "a row": lambda tensor: tensor[..., :1, :].expand(tensor.shape),
    "a column": lambda tensor: tensor[..., :1].expand(tensor.shape),
    "turned": lambda tensor: tensor.mT.contiguous().mT,
    "misaligned": lambda tensor: torch.nn.functional.pad(tensor, (1, 0))[..., 1:],
}


def _kernel() -> Kernel:
    """Each element plus a hundred times its row plus its column."""
    matrix = (Dim("s0", 3), Dim("s1", 5), Dim("s2", 8))
    row = Call("mul", (Coordinate(-2), Literal(100, DType.I64)), DType.I64)
    place = Call("add", (row, Coordinate(-1)), DType.I64)
    total = Call("add", (Operand(0, DType.F32), Call("cast", (place,), DType.F32)), DType.F32)
    return Kernel(
        name="located",
        family="pointwise",
        anchor=None,
        inputs=(TensorType(DType.F32, matrix),),
        epilogue=total,
        outputs=(TensorType(DType.F32, matrix),),
        operators=("add",),
        config=PointwiseConfig(threads=64, width=4, unroll=2),
    )


def _differences(library: Library, shape: tuple[int, ...], layout: str) -> int:
    # Whole numbers: every sum is exact.
    values = LAYOUTS[layout](torch.arange(float(torch.Size(shape).numel())).reshape(shape))
    out = torch.full(shape, torch.nan)
    library(out, [values])
    rows, columns = (torch.arange(size) for size in shape[-2:])
    return int((out != values + 100 * rows[:, None] + columns).sum())


def main() -> None:
    kernel = _kernel()
    wrong: dict[str, int] = {}
    with Session(order_seed=5, threads=1) as session:
        library = Library(kernel, kernel_text(kernel))
        for shape in SHAPES:
            for layout in LAYOUTS:
                wrong[f"{shape} {layout}"] = _differences(library, shape, layout)
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"wrong": wrong, "findings": findings}))


main()
