"""Child of test_windows.py: pooling on the emulator, against float64. Prints one JSON object.

Arguments: the name of a case.
"""

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import torch
from launching import Library
from layouts import LAYOUTS

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.anchors import PooledSource
from kernelwright.ir.expr import Accumulator, Call, Coordinate, Expr, Literal, Operand, Size
from kernelwright.ir.kinds import Pooling, Window
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay

TORCH = {
    DType.F32: torch.float32,
    DType.F64: torch.float64,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
}


PART = "part of a concatenation"
"""A layout of the source and of the result, for tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel and the shapes that it is called with."""

    window: Window
    config: WindowConfig
    shapes: list[tuple[int, ...]]
    dtype: DType = DType.F32
    scaled: bool = False
    """What is pooled is scaled by channel; sums are divided by the elements inside."""


def _walk(*, vector: int, outputs: int, steps: int) -> WindowConfig:
    return WindowConfig(way=WindowWay.WALK, threads=64, vector=vector, outputs=outputs, steps=steps)


def _tiles(shared: int) -> WindowConfig:
    return WindowConfig(way=WindowWay.TILES, threads=64, shared=shared)


def _flat(outputs: int) -> WindowConfig:
    return WindowConfig(way=WindowWay.FLAT, threads=64, outputs=outputs)


def _bands(*, vector: int, outputs: int, store: int, steps: int, shared: int) -> WindowConfig:
    return WindowConfig(
        way=WindowWay.BANDS,
        threads=64,
        vector=vector,
        outputs=outputs,
        store=store,
        steps=steps,
        shared=shared,
    )


# Rows of whole vectors and others; results that begin and end anywhere in a vector; windows that
# begin before and end after the source; several segments of a walk, several blocks.
CASES = {
    "maximum over columns": Case(
        window=Window(Pooling.MAXIMUM, (8,), (1,), (4,), (3,)),
        config=_walk(vector=4, outputs=4, steps=2),
        shapes=[(2, 24), (1, 3, 600), (3, 1, 40), (0, 3, 32), (2, 3, 31)],
    ),
    "mean over rows": Case(
        window=Window(Pooling.SUM, (4, 3), (1, 1), (1, 1), (1, 1)),
        config=_walk(vector=4, outputs=8, steps=3),
        shapes=[(2, 3, 9, 12), (1, 2, 5, 4), (1, 1, 20, 160), (1, 2, 7, 11)],
        scaled=True,
    ),
    "maximum over planes": Case(
        window=Window(Pooling.MAXIMUM, (3, 3, 3), (2, 2, 2), (1, 1, 1), (3, 2, 1)),
        config=replace(_walk(vector=4, outputs=2, steps=2), planes=2, ahead=1),
        shapes=[(1, 2, 13, 9, 16), (2, 1, 7, 6, 20), (1, 1, 6, 6, 9)],
    ),
    "half mean in lines": Case(
        window=Window(Pooling.SUM, (5, 7), (4, 5), (2, 3), (1, 1)),
        config=WindowConfig(way=WindowWay.LINES, threads=32, vector=4, outputs=8, steps=3),
        shapes=[(2, 3, 11, 40), (1, 2, 5, 8), (1, 1, 9, 160), (1, 2, 7, 11)],
        dtype=DType.F16,
        scaled=True,
    ),
    "products with weights": Case(
        window=Window(Pooling.DOT, (3, 5), (1, 1), (2, 2), (2, 1)),
        config=_walk(vector=4, outputs=4, steps=3),
        shapes=[(2, 3, 9, 12), (3, 5, 4), (1, 1, 20, 160), (1, 2, 7, 11), (2, 2, 1, 8)],
    ),
    "products of every other place": Case(
        window=Window(Pooling.DOT, (3, 3), (2, 2), (1, 0), (1, 2)),
        config=replace(_walk(vector=4, outputs=4, steps=2), planes=2, ahead=1),
        shapes=[(2, 3, 9, 12), (1, 2, 5, 8), (2, 2, 21, 68), (1, 2, 7, 11)],
        dtype=DType.F16,
        scaled=True,
    ),
    # Planes that begin anywhere in a vector, several to a block; bands of one, one shorter.
    "maximum in tiles": Case(
        window=Window(Pooling.MAXIMUM, (2, 3), (2, 2), (0, 1), (1, 1)),
        config=_tiles(1024),
        shapes=[(3, 5, 7, 7), (2, 3, 19, 31), (1, 1, 41, 23), (0, 3, 8, 8), (1, 2, 2, 90)],
    ),
    "mean in tiles": Case(
        window=Window(Pooling.SUM, (3, 3), (1, 1), (1, 1), (1, 1)),
        config=_tiles(1024),
        shapes=[(5, 3, 7, 5), (2, 1, 19, 19), (1, 2, 33, 23)],
        scaled=True,
    ),
    "maximum in tiles of a line": Case(
        window=Window(Pooling.MAXIMUM, (8,), (1,), (4,), (2,)),
        config=_tiles(512),
        shapes=[(2, 24), (5, 3, 33), (3, 1, 501)],
        dtype=DType.F16,
    ),
    "maximum in tiles of planes": Case(
        window=Window(Pooling.MAXIMUM, (2, 3, 3), (2, 1, 2), (0, 1, 1), (1, 1, 1)),
        config=_tiles(2048),
        shapes=[(2, 2, 5, 9, 11), (3, 1, 2, 6, 5), (1, 1, 9, 7, 6)],
    ),
    # Element by element; ends within a block.
    "maximum for each": Case(
        window=Window(Pooling.MAXIMUM, (2, 3, 3), (2, 1, 2), (0, 1, 1), (1, 1, 1)),
        config=_flat(3),
        shapes=[(2, 2, 5, 9, 11), (3, 1, 2, 6, 5), (1, 1, 9, 7, 6), (0, 1, 4, 4, 4)],
    ),
    "mean for each": Case(
        window=Window(Pooling.SUM, (2, 3), (2, 2), (0, 0), (1, 1)),
        config=_flat(2),
        shapes=[(3, 5, 7, 7), (2, 3, 19, 31), (0, 3, 8, 8), (1, 2, 2, 90)],
        scaled=True,
    ),
    # Whole planes and bands of them, several to a block; rows of the result that are no whole
    # vectors; more columns than a block has; windows that go far beyond the source.
    "products in bands": Case(
        window=Window(Pooling.DOT, (7, 7), (1, 1), (3, 3), (1, 1)),
        config=_bands(vector=1, outputs=4, store=1, steps=8, shared=12000),
        shapes=[
            (5, 3, 7, 7),
            (1, 2, 23, 13),
            (2, 3, 2, 90),
            (1, 1, 1, 1),
            (0, 3, 8, 8),
            (1, 1, 2, 300),
        ],
    ),
    "half products in bands": Case(
        window=Window(Pooling.DOT, (5, 5), (2, 2), (2, 2), (1, 1)),
        config=_bands(vector=2, outputs=4, store=1, steps=3, shared=9000),
        shapes=[(3, 5, 14, 14), (1, 3, 23, 30), (2, 2, 1, 2), (1, 2, 9, 11)],
        dtype=DType.F16,
    ),
    # Whole planes that are one run of memory, which begins anywhere.
    "short products in a run": Case(
        window=Window(Pooling.DOT, (7, 7), (1, 1), (3, 3), (1, 1)),
        config=_bands(vector=1, outputs=4, store=1, steps=16, shared=12000),
        shapes=[(5, 3, 7, 7), (3, 3, 14, 14), (1, 7, 9, 5), (1, 1, 11, 19)],
        dtype=DType.BF16,
    ),
    "short products in parts": Case(
        window=Window(Pooling.DOT, (7, 3), (1, 2), (3, 1), (1, 1)),
        config=_bands(vector=4, outputs=4, store=2, steps=16, shared=16000),
        shapes=[(2, 3, 33, 12), (1, 2, 30, 28), (3, 1, 3, 4), (1, 2, 40, 20)],
        dtype=DType.BF16,
    ),
    "scaled products in bands": Case(
        window=Window(Pooling.DOT, (3, 3), (1, 1), (1, 1), (1, 1)),
        config=_bands(vector=4, outputs=8, store=8, steps=5, shared=9000),
        shapes=[(3, 5, 8, 16), (1, 3, 23, 56), (2, 2, 1, 8), (1, 2, 9, 12)],
        dtype=DType.F16,
        scaled=True,
    ),
    "products of far places in bands": Case(
        window=Window(Pooling.DOT, (3, 2), (2, 3), (5, 2), (3, 2)),
        config=_bands(vector=1, outputs=2, store=2, steps=3, shared=9000),
        shapes=[(3, 2, 8, 16), (1, 3, 23, 26), (2, 2, 2, 5)],
        scaled=True,
    ),
    "products in a line": Case(
        window=Window(Pooling.DOT, (4,), (1,), (3,), (2,)),
        config=_walk(vector=4, outputs=8, steps=2),
        shapes=[(2, 24), (1, 3, 600), (3, 1, 40), (2, 3, 31)],
    ),
}


def kernel_of(case: Case) -> Kernel:
    dims = len(case.window.size)
    rank = max(len(shape) for shape in case.shapes)
    source = tuple(Dim(f"s{at}", 16) for at in range(rank))
    result = tuple(Dim(f"r{at}", 16) for at in range(rank))
    wide = DType.F64 if case.dtype is DType.F64 else DType.F32
    types = [TensorType(case.dtype, source)]
    prologue: Expr = Operand(0, case.dtype)
    epilogue: Expr = Accumulator(case.dtype)
    if case.dtype is not wide:
        prologue, epilogue = Call("cast", (prologue,), wide), Accumulator(wide)
    if case.scaled:
        ones = (Dim.static(1),) * dims
        types.append(TensorType(wide, (source[-dims - 1], *ones)))
        prologue = Call("mul", (prologue, Operand(1, wide)), wide)
        for at in range(dims if case.window.op is Pooling.SUM else 0):
            extent = Call("cast", (_inside(case.window, at, source[at - dims]),), wide)
            epilogue = Call("div", (epilogue, extent), wide)
    if case.dtype is not wide:
        epilogue = Call("cast", (epilogue,), case.dtype)
    read = len(types)
    if case.window.op is Pooling.DOT:
        sizes = (Dim.static(size) for size in case.window.size)
        types.append(TensorType(case.dtype, (source[-dims - 1], *sizes)))
    return Kernel(
        name="pool_of_case",
        family="pooling",
        anchor=PooledSource(window=case.window, source=source, prologue_inputs=read),
        inputs=tuple(types),
        prologue=prologue,
        epilogue=epilogue,
        outputs=(TensorType(case.dtype, result),),
        operators=("pool",),
        config=case.config,
    )


def _inside(window: Window, at: int, length: Dim) -> Expr:
    """Elements of the source in a window without dilation, along one dimension."""

    def whole(value: int) -> Literal:
        return Literal(value, DType.I64)

    def call(op: str, *args: Expr) -> Expr:
        return Call(op, args, DType.I64)

    place = Coordinate(at - len(window.size))
    first = call("sub", call("mul", place, whole(window.stride[at])), whole(window.padding[at]))
    end = call("minimum", call("add", first, whole(window.size[at])), Size(length))
    return call("sub", end, call("maximum", first, whole(0)))


def exact(case: Case, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The result in float64."""
    window, x = case.window, inputs[0].double()
    dims = len(window.size)
    if case.scaled:
        x = x * inputs[1]
    geometry = (window.size, window.stride, window.padding)
    functional = torch.nn.functional
    pools = {
        (Pooling.MAXIMUM, 1): functional.max_pool1d,
        (Pooling.MAXIMUM, 2): functional.max_pool2d,
        (Pooling.MAXIMUM, 3): functional.max_pool3d,
    }
    if window.op is Pooling.MAXIMUM:
        batched = x.reshape(prod(x.shape[: -dims - 1]), *x.shape[-dims - 1 :])
        pooled = pools[window.op, dims](batched, *geometry, window.dilation)
        return pooled.reshape(*x.shape[:-dims], *pooled.shape[-dims:])
    if window.op is Pooling.DOT:
        weights = inputs[-1].double().unsqueeze(1)
        convolve = functional.conv1d if dims == 1 else functional.conv2d
        groups = len(weights)
        return convolve(x, weights, None, *geometry[1:], window.dilation, groups)
    return functional.avg_pool2d(x, *geometry, count_include_pad=False)


def in_the_middle(tensor: torch.Tensor, dims: int) -> torch.Tensor:
    """The same numbers as a part of a concatenation of channels: images lie apart."""
    channel = -dims - 1
    first = tensor.narrow(channel, 0, 1)
    return torch.cat([first, tensor, tensor], channel).narrow(channel, 1, tensor.shape[channel])


def draw(case: Case, shape: tuple[int, ...], layout: str) -> list[torch.Tensor]:
    """Uniform numbers; in large ones infinities and NaN."""
    x = torch.rand(shape)
    if case.window.op is not Pooling.SUM and x.numel() > 500:
        flat = x.view(-1)
        flat[100], flat[200], flat[300] = torch.inf, torch.nan, -torch.inf
    dims = len(case.window.size)
    lay = LAYOUTS.get(layout, partial(in_the_middle, dims=dims))
    x = lay(x.to(TORCH[case.dtype]))
    channels = shape[-dims - 1]
    scale = torch.rand((channels, *(1,) * dims))
    weights = torch.rand((channels, *case.window.size)).to(x.dtype)
    is_dot = case.window.op is Pooling.DOT
    return [x, *[scale] * case.scaled, *[lay(weights)] * is_dot]


def main() -> None:
    case = CASES[sys.argv[1]]
    kernel = kernel_of(case)
    dims = len(case.window.size)
    is_tiled = case.config.way is WindowWay.TILES
    worst: dict[str, float] = {}
    untiled: list[str] = []
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = Library(kernel, kernel_text(kernel))
        for shape in case.shapes:
            for layout in (*LAYOUTS, *[PART] * is_tiled):
                inputs = draw(case, shape, layout)
                wanted = exact(case, inputs)
                out = torch.empty(wanted.shape, dtype=TORCH[case.dtype])
                if layout == "misaligned" and wanted.dim() == 4:
                    # A part of a tensor that others write, too.
                    out = torch.cat([out, out], 1)[:, wanted.shape[1] :]
                if layout == PART:
                    out = in_the_middle(out, dims)
                is_mean = case.scaled and case.window.op is Pooling.SUM
                sizes = list(shape[-dims:]) if is_mean else []
                session.take_launches()
                library(out, [*inputs, *sizes])
                if layout == PART and f"{kernel.name}_general_kernel" in session.take_launches():
                    untiled.append(str(shape))
                same = (out.double() == wanted) | (out.isnan() & wanted.isnan())
                error = torch.where(same, 0.0, (out.double() - wanted).abs())
                assert not error.isnan().any()
                worst[f"{shape} {layout}"] = error.max().item() if error.numel() else 0.0
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "findings": findings, "untiled": untiled}))


if __name__ == "__main__":
    main()
