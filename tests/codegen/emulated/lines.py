"""Child of test_lines.py: a pointwise kernel on lines, on the emulator. Prints one JSON object."""

import json
from collections.abc import Callable

import torch
from launching import Library

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.configs import PointwiseConfig
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, TensorType

# Lines that blocks fill, and nearly fill; short ones, one, and none; no whole vectors; three
# dimensions, two of which are one in memory.
SHAPES = [(3, 1024), (5, 1000), (7, 24), (1, 512), (0, 512), (4, 0), (3, 1030), (2, 3, 1024)]


def _every_other(tensor: torch.Tensor) -> torch.Tensor:
    """Lines are not one after the other in memory."""
    return torch.stack([tensor, tensor], 1).flatten(0, 1)[::2]


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (1, 0))[..., 1:]


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "every other": _every_other,
    "misaligned": _misaligned,
}


def _kernel() -> Kernel:
    """A column times a matrix, a half and a number added."""
    matrix = (Dim("s0", 3), Dim("s1", 1024))
    half = Call("cast", (Operand(2, DType.F16),), DType.F32)
    product = Call("mul", (Operand(0, DType.F32), Operand(1, DType.F32)), DType.F32)
    total = Call("add", (Call("add", (product, half), DType.F32), Operand(3, DType.F32)), DType.F32)
    return Kernel(
        name="lined",
        family="pointwise",
        anchor=None,
        inputs=(
            TensorType(DType.F32, (matrix[0], Dim.static(1))),
            TensorType(DType.F32, matrix),
            TensorType(DType.F16, matrix),
            TensorType(DType.F32, ()),
        ),
        epilogue=total,
        outputs=(TensorType(DType.F32, matrix),),
        operators=("mul", "add"),
        config=PointwiseConfig(threads=64, width=4, unroll=2),
    )


def _run(library: Library, shape: tuple[int, ...], layout: str) -> float:
    """The greatest error."""
    numbers = torch.Generator().manual_seed(sum(shape))
    column = torch.rand((*shape[:-1], 1), generator=numbers)
    matrix = LAYOUTS[layout](torch.rand(shape, generator=numbers))
    half = torch.rand(shape, generator=numbers).half()
    number = torch.rand((), generator=numbers)
    out = torch.full(shape, torch.nan)
    library(out, [column, matrix, half, number])
    right = column.double() * matrix + half + number
    return float((out - right).abs().nan_to_num(torch.inf).max()) if out.numel() else 0.0


def main() -> None:
    kernel = _kernel()
    worst: dict[str, float] = {}
    ran: dict[str, list[str]] = {}
    with Session(order_seed=5, threads=1) as session:
        library = Library(kernel, kernel_text(kernel))
        for shape in SHAPES:
            for layout in LAYOUTS:
                key = f"{shape} {layout}"
                worst[key] = _run(library, shape, layout)
                ran[key] = sorted(session.take_launches())
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "ran": ran, "findings": findings}))


main()
