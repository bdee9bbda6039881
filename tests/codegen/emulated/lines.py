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
# Lines that begin between vectors: that blocks fill, and half fill; short ones.
UNEVEN = [(5, 2041), (2, 3, 701), (3, 2, 37), (9, 11), (4, 3)]


def _every_other(tensor: torch.Tensor) -> torch.Tensor:
    """Lines are not one after the other in memory."""
    return torch.stack([tensor, tensor], 1).flatten(0, 1)[::2]


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (1, 0))[..., 1:]


def _every_ninth(tensor: torch.Tensor) -> torch.Tensor:
    """Lines begin as far behind a vector as where all are one run."""
    return torch.stack([tensor] * 9, -2).flatten(-3, -2)[..., ::9, :]


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    """Half a vector of eight behind an aligned address."""
    return torch.cat([tensor.new_zeros(4), tensor.flatten()])[4:].view(tensor.shape)


Layout = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: dict[str, Layout] = {
    "plain": lambda tensor: tensor,
    "every other": _every_other,
    "misaligned": _misaligned,
}
UNEVEN_LAYOUTS = {name: LAYOUTS[name] for name in ("plain", "misaligned")} | {
    "every ninth": _every_ninth,
    "shifted": _shifted,
    "operand misaligned": _misaligned,
}


def _kernel(width: int) -> Kernel:
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
        config=PointwiseConfig(threads=64, width=width, unroll=2),
    )


def _run(library: Library, shape: tuple[int, ...], name: str, layout: Layout) -> float:
    """The greatest error."""
    numbers = torch.Generator().manual_seed(sum(shape))
    column = torch.rand((*shape[:-1], 1), generator=numbers)
    matrix = layout(torch.rand(shape, generator=numbers))
    half = torch.rand(shape, generator=numbers).half()
    number = torch.rand((), generator=numbers)
    out = torch.full(shape, torch.nan)
    out = out if name.startswith("operand") else layout(out)
    library(out, [column, matrix, half, number])
    right = column.double() * matrix + half + number
    return float((out - right).abs().nan_to_num(torch.inf).max()) if out.numel() else 0.0


def main() -> None:
    worst: dict[str, float] = {}
    ran: dict[str, list[str]] = {}
    with Session(order_seed=5, threads=1) as session:
        for width, shapes, layouts in ((4, SHAPES, LAYOUTS), (8, UNEVEN, UNEVEN_LAYOUTS)):
            kernel = _kernel(width)
            library = Library(kernel, kernel_text(kernel))
            for shape in shapes:
                for name, layout in layouts.items():
                    key = f"{shape} {name}"
                    worst[key] = _run(library, shape, name, layout)
                    ran[key] = sorted(session.take_launches())
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "ran": ran, "findings": findings}))


main()
