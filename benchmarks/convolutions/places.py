"""Convolutions as products of patches: every configuration, beside cuDNN with channels last.

    python benchmarks/convolutions/places.py --dtype float32 --output places.json

Layers of ResNet-50 x 32, DeepLabV3 x 4 x 512 and UNet in bfloat16, or in float32 with products in
TF32 on both sides, each with batch norm and ReLU, some with a residual. Times are medians of
launches with a flushed L2; cuDNN's are of the bare convolution.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from provenance import provenance
from torch import Tensor, nn

from kernelwright.bench.timing import Stopwatch
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Kernel, Plan
from kernelwright.ir.product_configs import TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.module import capture_in_memory
from kernelwright.schedule import plan_graph, ranked_configs
from kernelwright.schedule.planning import OPEN
from kernelwright.schedule.product_shape import product_shape
from kernelwright.schedule.tensor_core_model import tensor_core_seconds
from kernelwright.toolchain.cuda import compile_libraries
from kernelwright.tune.measuring import KernelTimer
from kernelwright.tune.plans import source_of
from kernelwright.tune.tuner import Timing, Variant


class Layer(NamedTuple):
    """A square convolution of square maps."""

    images: int
    channels: int
    side: int
    results: int
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    residual: bool = False


LAYERS = (
    Layer(32, 64, 56, 64),
    Layer(32, 64, 56, 64, 3),
    Layer(32, 64, 56, 256),
    Layer(32, 64, 56, 256, residual=True),
    Layer(32, 256, 56, 64),
    Layer(32, 256, 56, 128),
    Layer(32, 128, 56, 128, 3, 2),
    Layer(32, 256, 56, 512, 1, 2),
    Layer(32, 128, 28, 512, residual=True),
    Layer(32, 512, 28, 128),
    Layer(32, 128, 28, 128, 3),
    Layer(32, 256, 14, 256, 3),
    Layer(32, 256, 14, 1024, residual=True),
    Layer(32, 1024, 14, 256),
    Layer(32, 512, 7, 512, 3),
    Layer(32, 512, 7, 2048, residual=True),
    Layer(32, 2048, 7, 512),
    Layer(4, 256, 64, 256, 3, 1, 2),
    Layer(32, 128, 28, 32, 3),
    Layer(32, 128, 14, 32, 3),
    Layer(32, 96, 56, 24),
    Layer(32, 24, 56, 72),
    Layer(8, 64, 128, 64, 3),
    Layer(8, 512, 8, 512, 3),
    Layer(32, 16, 112, 16, residual=True),
    Layer(32, 16, 112, 64),
    Layer(32, 16, 112, 96),
    Layer(32, 72, 56, 24, residual=True),
    Layer(32, 40, 28, 120),
    Layer(32, 128, 56, 32, 3),
    Layer(32, 128, 7, 32, 3),
)


class Block(nn.Module):
    """The layer with what follows it in networks, and one that reads the result by place."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        padding = layer.taps // 2 * layer.dilation
        self.conv = nn.Conv2d(
            layer.channels,
            layer.results,
            layer.taps,
            layer.stride,
            padding,
            layer.dilation,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(layer.results)
        self.residual = layer.residual
        self.reader = nn.Conv2d(layer.results, 8, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        x = x + y if self.residual else x
        return self.reader(torch.relu(x))


def kernel_of(layer: Layer, dtype: torch.dtype) -> tuple[Plan, Kernel]:
    """The product that computes a layer, in its plan."""
    module = Block(layer).eval().to(dtype)
    side = (layer.side - 1) // layer.stride + 1
    x = torch.rand(layer.images, layer.channels, layer.side, layer.side).to(dtype)
    y = torch.rand(layer.images, layer.results, side, side).to(dtype)
    graph = capture_in_memory(module, (x, y.contiguous(memory_format=torch.channels_last)), {})
    plan = plan_graph(graph, H200, choices=replace(OPEN, by_place=True)).plan
    return plan, next(it for it in plan.kernels if isinstance(it.anchor, Contract))


def cudnn_ms(layer: Layer, dtype: torch.dtype, stopwatch: Stopwatch) -> float:
    """Milliseconds of cuDNN's convolution alone, with channels last."""
    last = {"memory_format": torch.channels_last}
    x = torch.rand(layer.images, layer.channels, layer.side, layer.side, device="cuda")
    w = torch.rand(layer.results, layer.channels, layer.taps, layer.taps, device="cuda")
    x, w = x.to(dtype).contiguous(**last), w.to(dtype).contiguous(**last)
    padding = layer.taps // 2 * layer.dilation

    def call(_: int) -> None:
        torch.nn.functional.conv2d(x, w, None, layer.stride, padding, layer.dilation)

    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        stopwatch.warm_up(call, 0.05)
        times = sorted(stopwatch.sample(call, 30).device_ms)
    return times[len(times) // 2]


def modelled(kernel: Kernel, config: Any) -> float:
    """Milliseconds by the model."""
    shape = product_shape(kernel.anchored(Contract), kernel.inputs, kernel.output)
    return tensor_core_seconds(shape, config, H200) * 1e3


def measured(dtype: torch.dtype, seconds: float) -> Iterator[dict[str, Any]]:
    """A record of each layer: compiled all together, then timed."""
    made = [(layer, *kernel_of(layer, dtype)) for layer in LAYERS]
    texts: dict[str, int] = {}
    wanted = []
    for layer, plan, kernel in made:
        for config in ranked_configs(kernel, H200):
            if not isinstance(config, TensorCoreConfig) or config.transposed:
                continue
            # Layers share texts, but for what these say of sizes.
            lines = source_of(plan, kernel, config).splitlines()
            source = "\n".join(it for it in lines if not it.lstrip().startswith("//"))
            number = texts.setdefault(source, len(texts))
            wanted.append((layer, kernel, config, source, number))
    libraries = dict(compile_libraries(list(texts), seconds))
    device = torch.device("cuda")
    for layer, _, kernel in made:
        timer = KernelTimer(kernel, device)
        timer.prepare()
        configs = []
        for config, source, number in (it[2:] for it in wanted if it[0] == layer):
            library = libraries.get(number)
            if not isinstance(library, Path):
                configs.append({"config": str(config), "failed": str(library)[:300]})
                continue
            function = f"launch_{kernel.name}"
            found = timer(Variant(config=asdict(config), source=source, function=function), library)
            ms = found.seconds * 1e3 if isinstance(found, Timing) else None
            known = {"config": str(config), "modelled_ms": round(modelled(kernel, config), 5)}
            configs.append({**known, "ms": ms} if ms else {**known, "failed": found.reason})
        moved = sum(it.bytes_hint for it in (*kernel.inputs[:2], kernel.output))
        yield {
            **layer._asdict(),
            "bytes": moved + layer.residual * kernel.output.bytes_hint,
            "cudnn_ms": cudnn_ms(layer, dtype, Stopwatch(device)),
            "configs": configs,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("places.json"))
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--seconds", type=float, default=300.0, help="for compilers")
    options = parser.parse_args()
    records = []
    for record in measured(getattr(torch, options.dtype), options.seconds):
        records.append(record)
        timed = sorted((it["ms"], it["config"]) for it in record["configs"] if "ms" in it)
        best = f"{timed[0][0] * 1e3:.1f} us, {timed[0][1]}" if timed else "nothing"
        layer = {name: record[name] for name in Layer._fields}
        print(f"{Layer(**layer)}: {best}; cuDNN {record['cudnn_ms'] * 1e3:.1f} us", flush=True)
        known = {"provenance": provenance(), "dtype": options.dtype}
        text = json.dumps({**known, "layers": records}, indent=1)
        options.output.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
