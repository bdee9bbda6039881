"""Child of test_scans.py: scans on the emulator, against float64. Prints one JSON object.

Arguments: the name of a case.
"""

import json
import sys
from dataclasses import dataclass, replace

import torch
from launching import Library
from layouts import LAYOUTS

from kernelwright.codegen.cuda import kernel_text
from kernelwright.emulator import Session
from kernelwright.ir.expr import Accumulator, Call, Coordinate, Expr, Literal, Operand
from kernelwright.ir.kinds import Accumulation, Scan
from kernelwright.ir.plan import Kernel
from kernelwright.ir.scan_configs import ScanConfig, ScanWay
from kernelwright.ir.types import Dim, DType, TensorType

TORCH = {
    DType.F32: torch.float32,
    DType.F64: torch.float64,
    DType.F16: torch.float16,
    DType.I64: torch.int64,
    DType.BOOL: torch.bool,
}
BLOCK = ScanConfig(way=ScanWay.ROW_PER_BLOCK, width=4, items=1, warps=2, min_blocks=9)
RING = replace(BLOCK, stages=3, resident=4)
WARP = ScanConfig(way=ScanWay.ROW_PER_WARP, width=4, items=2, warps=3)
LANES = ScanConfig(way=ScanWay.ROW_IN_LANES, width=1, items=17, warps=3)
COLUMNS = ScanConfig(way=ScanWay.COLUMNS, width=2, items=2, warps=3)
# Empty and single ones; less than a vector, and one more; rows that begin anywhere; several chunks
# of a row, and segments of several.
ROWS = [(0, 4), (4, 0), (1, 1), (3, 5), (7, 257), (11, 516), (2, 3001), (1, 9000)]
INNER = [(2, 3, 4), (3, 1, 5), (1, 70, 8), (2, 33, 132), (0, 3, 4), (2, 0, 4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel and the shapes that it is called with."""

    config: ScanConfig
    shapes: list[tuple[int, ...]]
    dim: int = 1
    op: Accumulation = Accumulation.SUM
    reverse: bool = False
    exclusive: bool = False
    dtype: DType = DType.F32
    masked: bool = False
    """x * mask, and the results scaled along the last dimension and by their column."""


CASES = {
    "exclusive in blocks": Case(
        config=replace(BLOCK, stages=2), shapes=ROWS, reverse=True, exclusive=True, masked=True
    ),
    "product of doubles in blocks": Case(
        config=replace(BLOCK, width=2), shapes=ROWS, op=Accumulation.PRODUCT, dtype=DType.F64
    ),
    "product of floats in blocks": Case(config=RING, shapes=ROWS, op=Accumulation.PRODUCT),
    "product of floats in warps": Case(
        config=replace(WARP, stages=2), shapes=[(11, 516)], op=Accumulation.PRODUCT
    ),
    "product of floats in columns": Case(
        config=COLUMNS, shapes=[(11, 516, 2)], op=Accumulation.PRODUCT, exclusive=True
    ),
    "half in warps": Case(
        config=replace(WARP, width=8, items=1), shapes=ROWS, dtype=DType.F16, reverse=True
    ),
    "exclusive in lanes": Case(
        config=LANES, shapes=ROWS, reverse=True, exclusive=True, masked=True
    ),
    "half in lanes": Case(config=replace(LANES, items=9), shapes=ROWS, dtype=DType.F16),
    "integers in columns": Case(
        config=COLUMNS, shapes=INNER, dtype=DType.I64, masked=True, reverse=True, exclusive=True
    ),
}


def kernel_of(case: Case) -> Kernel:
    shape = tuple(Dim(f"s{at}", size) for at, size in enumerate(case.shapes[0]))
    wide = case.dtype is DType.F16
    computed = DType.F32 if wide else case.dtype
    types = (
        TensorType(case.dtype, shape),
        TensorType(DType.BOOL, shape),
        TensorType(case.dtype, shape[-1:]),
    )
    operand: Expr = Operand(0, case.dtype)
    prologue: Expr = Call("cast", (operand,), computed) if wide else operand
    epilogue: Expr = Accumulator(computed)
    if case.masked:
        kept = Call("cast", (Operand(1, DType.BOOL),), computed)
        prologue = Call("mul", (prologue, kept), computed)
        scaled = Call("mul", (epilogue, Operand(2, computed)), computed)
        column = Call("cast", (Coordinate(-1),), computed)
        at_start = Call("eq", (column, Literal(0, computed)), DType.BOOL)
        epilogue = Call("where", (at_start, epilogue, scaled), computed)
    if wide:
        epilogue = Call("cast", (epilogue,), DType.F16)
    return Kernel(
        name="scan_of_case",
        family="scan",
        anchor=Scan(op=case.op, dim=case.dim, reverse=case.reverse, exclusive=case.exclusive),
        inputs=types if case.masked else types[:1],
        prologue=prologue,
        epilogue=epilogue,
        outputs=(TensorType(case.dtype, shape),),
        operators=("cumsum",),
        config=case.config,
    )


def draw(case: Case, shape: tuple[int, ...], layout: str) -> list[torch.Tensor]:
    """What is scanned; infinity and NaN in rows of 516."""
    dtype = TORCH[case.dtype]
    x = torch.rand(shape) + (0.5 if case.op is Accumulation.PRODUCT else 0.0)
    if case.dtype is DType.I64:
        x = torch.randint(-9, 10, shape)
    elif case.dtype is DType.F32 and case.op is Accumulation.PRODUCT and 516 in shape:
        x = swinging(shape)
    elif shape[-1] == 516:
        x[1, 300], x[2, 400], x[2, 100] = torch.inf, -torch.inf, torch.inf
        x[3, 17] = torch.nan
    x = LAYOUTS[layout](x.to(dtype))
    mask = LAYOUTS[layout](torch.rand(shape) < 0.5) if layout != "misaligned" else x > 0
    scale = torch.rand(shape[-1:]).to(dtype) if case.dtype is not DType.I64 else torch.ones(1)
    return [x, mask, scale.to(dtype)] if case.masked else [x]


def swinging(shape: tuple[int, ...]) -> torch.Tensor:
    """Factors along dimension 1 whose products leave a float's range, or stay in it only together
    with what comes before."""
    x = 40.0 * torch.randn(shape)
    x[1, :3] = 1e-9
    x[2, 1:], x[2, 0] = -1e3, 0.0
    x[2, 450] = -torch.inf
    x[3], x[3, 0] = 1e-3, torch.inf
    x[4], x[4, 400] = 1e-3, torch.inf
    x[5, 0::4], x[5, 1::4], x[5, 2::4], x[5, 3::4] = 1e-30, 1e30, 1e30, 1e-30
    x[6, 0::2], x[6, 1::2] = 1e-25, 1e25
    x[7], x[7, 7] = 1e20, torch.nan
    x[8] = torch.rand(shape[1:]) - 0.5
    x[9:], x[9:, 0] = 1.0, 1e37
    x[9, 4::4], x[9, 5::4] = 100.0, 0.01
    x[10, 3::4], x[10, 4::4] = 100.0, 0.01
    return x


def exact(case: Case, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the sum of absolute values that went into each element."""
    x = inputs[0].double()
    if case.masked:
        x = x * inputs[1]
    scan = torch.cumprod if case.op is Accumulation.PRODUCT else torch.cumsum
    neutral = 1.0 if case.op is Accumulation.PRODUCT else 0.0

    def run(values: torch.Tensor) -> torch.Tensor:
        if case.reverse:
            values = values.flip(case.dim)
        if case.exclusive and values.shape[case.dim]:
            first = torch.full_like(values.narrow(case.dim, 0, 1), neutral)
            rest = values.narrow(case.dim, 0, values.shape[case.dim] - 1)
            values = torch.cat([first, rest], case.dim)
        values = scan(values, case.dim)
        return values.flip(case.dim) if case.reverse else values

    result, size = run(x), run(x.abs())
    if case.masked:
        scale = inputs[2].double().expand(x.shape[-1:]).clone()
        if scale.numel():
            scale[0] = 1.0
        result, size = result * scale, size * scale
    return result, size


def main() -> None:
    case = CASES[sys.argv[1]]
    kernel = kernel_of(case)
    worst: dict[str, float] = {}
    workspaces = []
    torch.manual_seed(0)
    with Session(order_seed=1, threads=1) as session:
        library = Library(kernel, kernel_text(kernel))
        for shape in case.shapes:
            for layout in LAYOUTS:
                inputs = draw(case, shape, layout)
                out = torch.empty(shape, dtype=TORCH[case.dtype])
                workspaces.append(library(out, inputs))
                again = torch.empty_like(out)
                library(again, inputs)
                key = f"{shape} {layout}"
                assert torch.equal(out.nan_to_num(7.0), again.nan_to_num(7.0)), key
                worst[key] = error(out, *exact(case, inputs))
    findings = [str(finding) for finding in session.findings]
    print(json.dumps({"worst": worst, "workspace": max(workspaces), "findings": findings}))


def error(result: torch.Tensor, exact: torch.Tensor, size: torch.Tensor) -> float:
    """The greatest, over the sum of absolute values."""
    rounded = exact.to(result.dtype)
    # Of zeros too the sign counts.
    same = (result == rounded) & (result.signbit() == rounded.signbit())
    same |= result.isnan() & exact.isnan()
    distance = torch.where(same, 0.0, (result.double() - exact).abs() / (size + 1e-30))
    distance[~same & (result == 0) & (rounded == 0)] = torch.inf
    assert not distance.isnan().any()
    return distance.max().item() if distance.numel() else 0.0


if __name__ == "__main__":
    main()
