"""Times depthwise convolutions of bfloat16 maps whose channels are last, beside the library's.

    python benchmarks/kernels/depthwise_last.py [--tuned]

Needs nvcc, a GPU and torch. Prints medians of single launches with a cold L2, in microseconds, with
the floor, which is of bytes or of multiply-adds, and what the model says. `--tuned`: of every
configuration that the tuner would try.
"""

import argparse
import ctypes
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional as F

from kernels import Timer
from kernelwright import kernels
from kernelwright.codegen.cuda import kernel_text
from kernelwright.codegen.spelling import HEADERS
from kernelwright.ir.anchors import PooledSource
from kernelwright.ir.expr import Accumulator, Call, Operand
from kernelwright.ir.kinds import Pooling, Window
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import Machine, detect
from kernelwright.program.abi import pack
from kernelwright.schedule.families.pooling import POOLING

NVCC = ("nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-arch=sm_90a")
IMAGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Channels, height and width, taps of either, stride; padding keeps the map but for that."""

    channels: int
    side: int
    taps: int
    stride: int = 1

    @property
    def after(self) -> int:
        """Height and width of the result."""
        return -(-self.side // self.stride)

    def __str__(self) -> str:
        name = f"{self.channels} x {self.side} x {self.side}, {self.taps} x {self.taps}"
        return f"{name}, stride {self.stride}" if self.stride > 1 else name


LAYERS = (
    Layer(channels=96, side=56, taps=7),
    Layer(channels=192, side=28, taps=7),
    Layer(channels=384, side=14, taps=7),
    Layer(channels=768, side=7, taps=7),
    Layer(channels=672, side=14, taps=5),
    Layer(channels=240, side=28, taps=3, stride=2),
    Layer(channels=64, side=112, taps=3, stride=2),
)


def kernel_of(layer: Layer, name: str) -> Kernel:
    """The convolution and its bias, not yet with a configuration that is worth anything."""
    sizes = (IMAGES, layer.side, layer.side, layer.channels)
    places = (IMAGES, layer.after, layer.after, layer.channels)
    source, result = (tuple(map(Dim.static, shape)) for shape in (sizes, places))
    taps = (Dim.static(layer.taps),) * 2
    types = [TensorType(DType.BF16, shape) for shape in (source, source[-1:], (*taps, source[-1]))]
    padding = layer.taps // 2
    window = Window(
        op=Pooling.DOT_LAST,
        size=(layer.taps, layer.taps, 1),
        stride=(layer.stride, layer.stride, 1),
        padding=(padding, padding, 0),
        dilation=(1, 1, 1),
    )
    value, bias = (Call("cast", (Operand(at, DType.BF16),), DType.F32) for at in (0, 1))
    total = Call("add", (Accumulator(DType.F32), bias), DType.F32)
    return Kernel(
        name=name,
        family=POOLING.name,
        anchor=PooledSource(window=window, source=source, prologue_inputs=1),
        inputs=tuple(types),
        prologue=value,
        epilogue=Call("cast", (total,), DType.BF16),
        outputs=(TensorType(DType.BF16, result),),
        operators=("conv2d",),
        config=WindowConfig(way=WindowWay.ELEMENTS, threads=256),
    )


def built(kernel: Kernel, folder: Path) -> ctypes.CDLL:
    """Its library."""
    text = kernel_text(kernel)
    headers, library = kernels.in_use(text.section, *text.sources, HEADERS[DType.BF16], "math.cuh")
    includes = "".join(f"#include {header}\n" for header in headers)
    source, target = folder / f"{kernel.name}.cu", folder / f"{kernel.name}.so"
    source.write_text(f"{includes}\nnamespace {{\n\n{library}\n}}  // namespace\n\n{text.section}")
    flags = ("-Xcompiler", "-fPIC", "-shared", "-w", "-o", str(target), str(source))
    subprocess.run([*NVCC, *flags], check=True)
    return ctypes.CDLL(str(target))


def measure(layer: Layer, number: int, machine: Machine, most: int, folder: Path) -> None:
    """Prints the library's time, and ours for so many configurations at most."""
    timer = Timer()
    shape = (IMAGES, layer.channels, layer.side, layer.side)
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    x = torch.rand(shape, **options).to(memory_format=torch.channels_last)
    weight = torch.rand((layer.channels, 1, layer.taps, layer.taps), **options)
    bias = torch.rand(layer.channels, **options)
    geometry = (layer.stride, layer.taps // 2, 1, layer.channels)
    wanted = F.conv2d(x, weight, bias, *geometry)
    library = timer(lambda: F.conv2d(x, weight, bias, *geometry))
    size = (x.numel() + wanted.numel()) * x.element_size()
    flops = 2 * wanted.numel() * layer.taps**2
    floor = machine.floor_seconds(size, flops, "fp32_simt")
    print(f"{layer}: floor {floor * 1e6:.1f}, the library {library * 1e6:.1f}", flush=True)
    # In memory all three are as they are.
    out = torch.empty_like(wanted).permute(0, 2, 3, 1)
    inputs = (x.permute(0, 2, 3, 1), bias, weight.squeeze(1).permute(1, 2, 0))
    plain = kernel_of(layer, f"depthwise_{number}")
    for at, config in enumerate(POOLING.configs(plain, machine)[:most]):
        kernel = replace(plain, name=f"depthwise_{number}_{at}", config=config)
        launch = getattr(built(kernel, folder), f"launch_{kernel.name}")
        words = pack((out, *inputs), stream=torch.cuda.current_stream().cuda_stream)
        seconds = timer(lambda launch=launch, words=words: launch(words))
        error = (out.permute(0, 3, 1, 2).float() - wanted.float()).abs().max().item()
        modelled = POOLING.seconds(kernel, machine) or 0.0
        numbers = f"{seconds * 1e6:.1f}, modelled {modelled * 1e6:.1f}, error {error:.1e}"
        print(f"    {numbers}: {config}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned", action="store_true")
    most = 8 if parser.parse_args().tuned else 1
    machine = detect()
    assert machine is not None, "a card is needed"
    with tempfile.TemporaryDirectory() as folder:
        for number, layer in enumerate(LAYERS):
            measure(layer, number, machine, most, Path(folder))


if __name__ == "__main__":
    main()
