"""Child of test_turned.py: a pointwise kernel in tiles, on the emulator. Prints one JSON object."""

import json

import torch
from launching import Library

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.configs import PointwiseConfig
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, Layout, TensorType

# Few and many channels and places, tiles that end inside of the tensor and beside of it, and
# matrices too small for a tile.
SHAPES = [(2, 3, 700), (1, 67, 131), (3, 64, 96), (2, 2, 600), (1, 40, 40), (2, 5, 6), (0, 40, 40)]
CAPTURED = [SHAPES[0], (16, 1024, 1024)]
"""Of a result that the caches keep, and of one that they do not."""


def _kernel(captured: tuple[int, ...]) -> Kernel:
    """The sum of a turned float, a turned half, a plain float, a plain half and a row's value."""
    types = [DType.F32, DType.F16, DType.F32, DType.F16, DType.F32]
    total: Call | Operand = Operand(0, DType.F32)
    for index, dtype in enumerate(types[1:], start=1):
        operand: Call | Operand = Operand(index, dtype)
        if dtype is DType.F16:
            operand = Call("cast", (operand,), DType.F32)
        total = Call("add", (total, operand), DType.F32)
    shape = tuple(Dim.static(size) for size in captured)
    row = (shape[1], Dim.static(1))
    return Kernel(
        name="turned",
        family="pointwise",
        anchor=None,
        inputs=(
            *(TensorType(it, shape, Layout((0, 2, 1))) for it in types[:2]),
            *(TensorType(it, shape) for it in types[2:-1]),
            TensorType(DType.F32, row),
        ),
        epilogue=total,
        outputs=(TensorType(DType.F32, shape),),
        operators=("add",),
        config=PointwiseConfig(threads=64, width=4, unroll=1),
    )


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT.contiguous().mT


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The first element is one element past an aligned address."""
    return torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])[1:].view(tensor.shape)


def _worst(library: Library, shape: tuple[int, ...]) -> float:
    numbers = torch.Generator().manual_seed(sum(shape))
    values = [torch.rand(shape, generator=numbers) for _ in range(4)]
    row = torch.rand(shape[1], 1, generator=numbers)
    values[1], values[3] = values[1].half(), values[3].half()
    inputs = [_turned(values[0]), _turned(values[1]), values[2], values[3], row]
    worst = 0.0
    # Either side may be the one that is turned, and rows may begin between two runs.
    for turn in (lambda tensor: tensor, _turned, _misaligned):
        out = turn(torch.full(shape, torch.nan))
        library(out, inputs)
        right = sum(value.double() for value in (*values, row))
        if out.numel():
            worst = max(worst, float((out - right).abs().nan_to_num(torch.inf).max()))
    return worst


def main() -> None:
    worst: dict[str, float] = {}
    ran: dict[str, list[str]] = {}
    with Session(order_seed=3, threads=1) as session:
        for captured in CAPTURED:
            kernel = _kernel(captured)
            library = Library(kernel, kernel_text(kernel))
            for shape in SHAPES:
                name = f"{captured}: {shape}"
                worst[name] = _worst(library, shape)
                ran[name] = sorted(session.take_launches())
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "ran": ran, "findings": findings}))


main()
