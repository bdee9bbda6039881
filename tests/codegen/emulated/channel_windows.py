"""Child of test_windows.py: depthwise convolutions of channels that are last, on the emulator,
against float64. Prints one JSON object.

Arguments: the name of a case.
"""

import json
import sys
from dataclasses import dataclass

import torch
from launching import Library
from layouts import LAYOUTS
from windows import TORCH

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.anchors import PooledSource
from kernelwright.ir.expr import Accumulator, Call, Expr, Operand
from kernelwright.ir.kinds import Pooling, Window
from kernelwright.ir.plan import Kernel
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel and the shapes (images, height, width, channels) that it is called with."""

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    vector: int
    outputs: int
    steps: int
    shapes: list[tuple[int, int, int, int]]
    dtype: DType = DType.F32
    scaled: bool = False
    """A number for each place is added to the source, and it is scaled by channel: it would not be
    zero outside."""
    finished: bool = False
    """The result is scaled by channel and image, and a number for each place, and each element, is
    added."""


# Fewer columns and rows than a thread has, and more; a part of a chunk of channels; channels that
# are no whole vectors, one of them; several segments; no element at all.
CASES = {
    "bfloat16, 7 x 7": Case(
        size=(7, 7),
        padding=(3, 3),
        vector=2,
        outputs=4,
        steps=8,
        shapes=[(3, 7, 7, 24), (1, 19, 14, 70), (2, 2, 1, 6), (1, 9, 5, 7)],
        dtype=DType.BF16,
    ),
    "float32, every other, with an epilogue": Case(
        size=(3, 3),
        stride=(2, 2),
        padding=(1, 1),
        vector=4,
        outputs=4,
        steps=3,
        shapes=[(2, 14, 15, 12), (1, 9, 28, 148), (0, 5, 5, 8), (1, 1, 1, 4), (2, 5, 7, 1)],
        finished=True,
    ),
    "float16, far apart, scaled, with an epilogue": Case(
        size=(5, 3),
        stride=(2, 1),
        padding=(2, 3),
        dilation=(1, 2),
        vector=8,
        outputs=2,
        steps=4,
        shapes=[(2, 9, 11, 16), (1, 21, 3, 8), (1, 6, 6, 12)],
        dtype=DType.F16,
        scaled=True,
        finished=True,
    ),
    "any channels, rows left out": Case(
        size=(3, 5),
        stride=(7, 3),
        padding=(1, 2),
        dilation=(2, 1),
        vector=1,
        outputs=7,
        steps=2,
        shapes=[(2, 29, 13, 37), (1, 4, 40, 3), (1, 8, 9, 1)],
    ),
}


def kernel_of(case: Case) -> Kernel:
    source = tuple(Dim(f"s{at}", 16) for at in range(4))
    result = (source[0], Dim("r1", 16), Dim("r2", 16), source[3])
    wide = DType.F32
    types = [TensorType(case.dtype, source)]
    prologue: Expr = Operand(0, case.dtype)
    if case.dtype is not wide:
        prologue = Call("cast", (prologue,), wide)
    if case.scaled:
        types += [TensorType(wide, (*source[:3], ONE)), TensorType(wide, (source[3],))]
        prologue = Call(
            "mul", (Call("add", (prologue, Operand(1, wide)), wide), Operand(2, wide)), wide
        )
    read = len(types)
    epilogue: Expr = Accumulator(wide)
    if case.finished:
        types += [
            TensorType(wide, (source[3],)),
            TensorType(case.dtype, (source[0], ONE, ONE, source[3])),
            TensorType(wide, (*result[:3], ONE)),
            TensorType(case.dtype, result),
        ]
        for at, op in enumerate(("mul", "mul", "add", "add"), start=read):
            value: Expr = Operand(at, types[at].dtype)
            if types[at].dtype is not wide:
                value = Call("cast", (value,), wide)
            epilogue = Call(op, (epilogue, value), wide)
    if case.dtype is not wide:
        epilogue = Call("cast", (epilogue,), case.dtype)
    types.append(TensorType(case.dtype, (*map(Dim.static, case.size), source[3])))
    window = Window(
        op=Pooling.DOT_LAST,
        size=(*case.size, 1),
        stride=(*case.stride, 1),
        padding=(*case.padding, 0),
        dilation=(*case.dilation, 1),
    )
    return Kernel(
        name="depthwise",
        family="pooling",
        anchor=PooledSource(window=window, source=source, prologue_inputs=read),
        inputs=tuple(types),
        prologue=prologue,
        epilogue=epilogue,
        outputs=(TensorType(case.dtype, result),),
        operators=("conv2d",),
        config=WindowConfig(
            way=WindowWay.CHANNELS,
            threads=64,
            vector=case.vector,
            outputs=case.outputs,
            steps=case.steps,
        ),
    )


def draw(case: Case, shape: tuple[int, ...], layout: str) -> tuple[list[torch.Tensor], list[int]]:
    """Uniform numbers, in large sources infinities and NaN; and the shape of the result."""
    images, *sides, channels = shape
    geometry = zip(sides, case.size, case.stride, case.padding, case.dilation, strict=True)
    places = [
        (side + 2 * padding - dilation * (size - 1) - 1) // stride + 1
        for side, size, stride, padding, dilation in geometry
    ]
    result = [images, *places, channels]
    kind = TORCH[case.dtype]
    x = torch.rand(shape)
    if x.numel() > 500:
        flat = x.view(-1)
        flat[100], flat[200], flat[300] = torch.inf, torch.nan, -torch.inf
    lay = LAYOUTS[layout]
    inputs = [lay(x.to(kind))]
    if case.scaled:
        inputs += [torch.rand((*shape[:3], 1)), torch.rand(channels)]
    if case.finished:
        inputs += [
            torch.rand(channels),
            torch.rand((images, 1, 1, channels)).to(kind),
            torch.rand((*result[:3], 1)),
            lay(torch.rand(result).to(kind)),
        ]
    # As PyTorch has them, channels first.
    weights = torch.rand((channels, *case.size)).to(kind).permute(1, 2, 0)
    return [*inputs, lay(weights)], result


def exact(case: Case, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The result in float64."""
    x, weights = inputs[0].double(), inputs[-1].double().permute(2, 0, 1).unsqueeze(1)
    if case.scaled:
        x = (x + inputs[1]) * inputs[2]
    geometry = (case.stride, case.padding, case.dilation, len(weights))
    y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weights, None, *geometry)
    y = y.permute(0, 2, 3, 1)
    if case.finished:
        by_channel, by_image, by_place, by_element = inputs[-5:-1]
        y = y * by_channel * by_image + by_place + by_element
    return y


def main() -> None:
    case = CASES[sys.argv[1]]
    kernel = kernel_of(case)
    worst: dict[str, float] = {}
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = Library(kernel, kernel_text(kernel))
        for shape in case.shapes:
            for layout in ("plain", "every other", "misaligned"):
                inputs, result = draw(case, shape, layout)
                wanted = exact(case, inputs)
                out = torch.empty(result, dtype=TORCH[case.dtype])
                library(out, inputs)
                same = (out.double() == wanted) | (out.isnan() & wanted.isnan())
                error = torch.where(same, 0.0, (out.double() - wanted).abs())
                assert not error.isnan().any(), (shape, layout)
                worst[f"{shape} {layout}"] = error.max().item() if error.numel() else 0.0
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "findings": findings}))


if __name__ == "__main__":
    main()
