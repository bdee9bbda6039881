"""The model of convolutions against what an H200 took, and the choice between ours and cuDNN's."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "convolutions"))

from cases import CASES, Case

from kernelwright.capture import capture_module
from kernelwright.ir.conv_configs import (
    ConvConfig,
    ConvSchedule,
    ConvStore,
    DirectConfig,
    Rounding,
    RowTaps,
)
from kernelwright.ir.kinds import Conv
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import A100, H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.conv_configs import ranked_convolutions, shared_bytes
from kernelwright.schedule.conv_model import conv_seconds, run_bytes, runs
from kernelwright.schedule.conv_or_library import rounding_of
from kernelwright.schedule.conv_shape import ConvSizes, conv_sizes

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
_MEASURED = json.loads((_RESULTS / "convolutions_h200.json").read_text())
_RECORDS = {record["case"]: record for record in _MEASURED["records"]}


def _sizes(case: Case) -> ConvSizes:
    n = case.spatial
    conv = Conv(
        stride=case.stride[:n],
        padding=case.padding[:n],
        dilation=case.dilation[:n],
        groups=case.groups,
        transposed=case.transposed,
    )
    shapes = (case.x, case.weight, case.output_shape())
    types = (TensorType(DType.F32, tuple(map(Dim.static, shape))) for shape in shapes)
    return conv_sizes(conv, *types)


def _recorded_name(config: ConvConfig) -> str:
    turns = "alt" if config.schedule is ConvSchedule.ALTERNATE else ""
    patches = f" h{config.patches}x{config.patch_bytes}" if config.patches else ""
    return (
        f"{config.spatial}d {RowTaps(config.row_taps).name[0].lower()}{config.chunk} "
        f"p{config.planes} {config.channels}x{config.positions}{turns} k1{patches}"
    )


def test_what_is_ranked_first_is_fast() -> None:
    logs = []
    for case in CASES:
        planes = 1 if case.arithmetic == "tf32" else 2
        sizes = _sizes(case)
        ranked = [it for it in ranked_convolutions(sizes, planes, H200)
                  if isinstance(it[1], ConvConfig)]  # fmt: skip
        # The kernel that wrote planes for overlapping pixels took twice as long then.
        found = [
            v for v in _RECORDS[case.name]["variants"] if "ms" in v and " o" not in v["variant"]
        ]
        times = {re.sub(r" s\d+| rows", "", v["variant"]): v["ms"] for v in found}
        # Others were not timed.
        lines = [replace(c, store=ConvStore.LINES) for _, c in ranked if not c.has_joined]
        modelled = sorted((conv_seconds(sizes, c, H200), _recorded_name(c)) for c in lines)
        known = [(seconds, times[name]) for seconds, name in modelled if name in times]
        assert all(shared_bytes(config) <= H200.shared_memory_per_block for _, config in ranked)
        if known:
            assert known[0][1] <= 1.16 * min(times.values()), case.name
            logs += [math.log(seconds * 1e3 / ms) for seconds, ms in known]
    assert len(logs) > 55
    assert math.sqrt(sum(it * it for it in logs) / len(logs)) < 0.2


def test_no_other_card_has_the_kernel() -> None:
    assert ranked_convolutions(_sizes(CASES[0]), 1, A100) == ()


def _plan(layer: nn.Module, *shape: int, library: Library = Library.WHERE_FASTER) -> list[str]:
    """Rounding of each convolution that is ours; "library" for the others."""
    graph = capture_module(layer.eval(), (torch.empty(shape, device="meta"),))
    planned = plan_graph(graph, H200, library)
    kernels = [kernel for kernel in planned.plan.kernels if kernel.family == "conv"]
    left = [step for step in planned.plan.left_to_pytorch if "conv" in step.name]
    return [kernel.anchor.rounding.name for kernel in kernels] + ["library"] * len(left)


_ONE, _THREE, _SHORT = (it.name for it in (Rounding.MEASURED_SIZES, Rounding.NONE, Rounding.SHORT))


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Conv2d(64, 128, 3), (8, 64, 512, 1024), _ONE),
        # On an image a large filter with strides is TF32, a small one float32.
        (nn.Conv2d(3, 96, 11, 4, 2), (256, 3, 224, 224), _ONE),
        (nn.Conv2d(3, 64, 3), (64, 3, 512, 512), _THREE),
        # cuDNN computes few channels and groups in float32.
        (nn.Conv2d(8, 64, 3), (128, 8, 128, 128), _THREE),
        (nn.ConvTranspose2d(32, 64, (3, 5), (2, 3), (1, 2), groups=4, dilation=(2, 1)),
         (16, 32, 128, 256), _THREE),
        # Phases are stored together.
        (nn.ConvTranspose2d(32, 64, 3, 5, 1, dilation=2), (16, 32, 64, 128), _ONE),
        (nn.ConvTranspose1d(32, 64, 3, 2, 1, dilation=2), (16, 32, 131072), _ONE),
        # Few products for each element, and small calls.
        (nn.Conv3d(3, 64, (3, 3, 1)), (16, 3, 256, 256, 10), _THREE),
        (nn.Conv2d(64, 64, 3), (1, 64, 28, 28), "library"),
        # A product of one tap turns nothing in cuDNN; what follows it is a pass more.
        (nn.Conv2d(64, 128, 1), (16, 64, 512, 512), "library"),
        (nn.Sequential(nn.Conv2d(64, 128, 1), nn.ReLU()), (16, 64, 512, 512), _ONE),
        # Its tiles do not fill the card.
        (nn.Sequential(nn.Conv2d(512, 512, 3, padding=1), nn.ReLU()), (10, 512, 14, 14), _ONE),
        # Alone cuDNN is faster, but then a softmax and what follows it are two passes.
        (nn.Sequential(nn.ConvTranspose2d(64, 128, 4, 2), nn.Softmax(1), nn.Sigmoid()),
         (128, 64, 64, 64), _ONE),
        # A softmax may give what fp16 planes do not carry, a sigmoid of few units does not.
        (nn.Sequential(nn.Softmax(-1), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3)),
         (8, 64, 512, 1024), "library"),
        (nn.Sequential(nn.Sigmoid(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3)),
         (8, 64, 512, 1024), _ONE),
    ],
)  # fmt: skip
def test_ours_or_the_library(layer: nn.Module, shape: tuple[int, ...], expected: str) -> None:
    assert _plan(layer, *shape) == [expected]


@pytest.mark.parametrize(
    ("channels", "expected"), [(64, Rounding.NONE), (128, Rounding.MEASURED_SIZES)]
)
def test_few_channels_with_strides_are_float32(channels: int, expected: Rounding) -> None:
    conv = Conv(stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=1, transposed=False)
    shapes = ((2, channels, 56, 56), (2 * channels, channels, 1, 1), (2, 2 * channels, 28, 28))
    types = (TensorType(DType.F32, tuple(map(Dim.static, shape))) for shape in shapes)
    assert rounding_of(conv_sizes(conv, *types), H200) is expected


def test_few_products_are_computed_on_the_cuda_cores() -> None:
    conv = Conv(stride=(1,) * 3, padding=(0,) * 3, dilation=(1,) * 3, groups=1, transposed=False)
    shapes = ((128, 3, 16, 64, 64), (24, 3, 3, 3, 3), (128, 24, 14, 62, 62))
    types = (TensorType(DType.F32, tuple(map(Dim.static, shape))) for shape in shapes)
    sizes = conv_sizes(conv, *types)
    seconds, first = ranked_convolutions(sizes, 2, H200)[0]
    assert first == DirectConfig(channels=24)
    # Runs of pixels and joined outputs come nearest; everything else takes twice as long.
    for it, config in ranked_convolutions(sizes, 2, H200)[1:]:
        assert isinstance(config, ConvConfig)
        near = config.has_runs or config.outputs > 1
        assert it > (1.4 if near else 2) * seconds, config
    # One product rounds as these do not, and many products are faster on tensor cores.
    for other, planes in ((sizes, 1), (replace(sizes, in_channels=64), 2)):
        assert not any(
            isinstance(it, DirectConfig) for _, it in ranked_convolutions(other, planes, H200)
        )


def test_eight_channels_meet_runs_of_pixels() -> None:
    conv = Conv(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, transposed=False)
    shapes = ((128, 8, 128, 128), (64, 8, 3, 3), (128, 64, 126, 126))
    types = (TensorType(DType.F32, tuple(map(Dim.static, shape))) for shape in shapes)
    sizes = conv_sizes(conv, *types)
    config = ranked_convolutions(sizes, 2, H200)[0][1]
    assert isinstance(config, ConvConfig) and config.has_runs
    found = runs(sizes, config)
    # Nine taps are three pairs of instructions; 126 outputs at least, less a sector, are 112.
    assert found is not None and (found.pairs, found.step, found.pixels) == (3, 112, 3 * 128 + 2)
    assert run_bytes(sizes, config, found) <= config.patch_bytes
    padded = replace(sizes, axes=tuple(replace(axis, padding=1) for axis in sizes.axes))
    assert runs(padded, config) is None


def _few_channels(**others: object) -> ConvSizes:
    """Of 8 channels to 32, in three dimensions (KernelBench level 2 no. 7)."""
    conv = Conv(stride=(1,) * 3, padding=(0,) * 3, dilation=(1,) * 3, groups=1, transposed=False)
    shapes = ((64, 8, 32, 64, 64), (32, 8, 3, 3, 3), (64, 32, 30, 62, 62))
    types = (TensorType(DType.F32, tuple(map(Dim.static, shape))) for shape in shapes)
    return replace(conv_sizes(conv, *types), **others)


def test_warps_without_channels_wait_for_long_functions() -> None:
    plain, long = _few_channels(), _few_channels(operation=44)
    ranked = [it for _, it in ranked_convolutions(plain, 1, H200) if isinstance(it, ConvConfig)]
    config = next(it for it in ranked if it.outputs == 1)
    assert config.channels == 64
    # Two of four warps have channels.
    assert conv_seconds(long, config, H200) > 1.3 * conv_seconds(plain, config, H200)
    # Two outputs a position fill the tile, and nobody waits.
    first = ranked_convolutions(long, 1, H200)[0][1]
    assert isinstance(first, ConvConfig) and (first.outputs, first.channels) == (2, 64)
    assert conv_seconds(long, first, H200) == conv_seconds(plain, first, H200)


def test_neighbouring_outputs_join_where_channels_are_few() -> None:
    width = _few_channels().with_outputs(2).axes[0]
    # Outputs 2j and 2j + 1 meet four elements of the input.
    assert (width.taps, width.step, width.dilation, width.positions) == (4, 2, 1, 31)
    assert _few_channels().with_outputs(4).rows == 128
    strided = replace(_few_channels().axes[0], stride=2, dilation=4, out=61).joining(4)
    # Offsets 0, 4 and 8 from each of 0, 2, 4 and 6: every second one, of 16 positions.
    assert (strided.taps, strided.step, strided.dilation, strided.positions) == (8, 8, 2, 16)
    for others in ({"reads_by_place": True}, {"over_channels": True}, {"out_channels": 48}):
        ranked = ranked_convolutions(_few_channels(**others), 1, H200)
        assert ranked and all(c.outputs == 1 for _, c in ranked if isinstance(c, ConvConfig))


def _kernels(*layers: nn.Module) -> list[tuple[str, ...]]:
    graph = capture_module(nn.Sequential(*layers), (torch.empty(32, 64, 56, 56),))
    return [kernel.operators for kernel in plan_graph(graph, H200).plan.kernels]


def test_what_joins_a_convolution() -> None:
    conv = nn.Conv2d(64, 128, 3)
    # Two steps of the norm read it: it is added where it is made, not twice.
    assert _kernels(conv, nn.InstanceNorm2d(128))[0] == ("conv2d", "bias")
    assert _kernels(conv, nn.Mish()) == [("conv2d", "bias", "mish")]
    # Its few warps would take longer than a kernel that reads and writes.
    assert _kernels(conv, nn.Mish(), nn.Mish()) == [("conv2d",), ("bias", "mish")]
    # A norm needs totals of what it makes: what pools or reduces that computes it.
    *_, pooled = _kernels(conv, nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2))
    assert pooled == ("batch_norm", "relu", "max_pool2d")
    *_, mean = _kernels(conv, nn.InstanceNorm2d(128), nn.AdaptiveAvgPool2d(1))
    assert "adaptive_avg_pool2d" in mean and len(mean) > 1


class _Residual(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x) + near)


def test_phases_read_no_other_tensor_by_place() -> None:
    found = []
    for layer, side in (
        (nn.Conv2d(64, 64, 3, padding=1), 64),
        (nn.ConvTranspose2d(64, 64, 2, 2), 128),
    ):
        given = (torch.empty(128, 64, 64, 64), torch.empty(128, 64, side, side))
        graph = capture_module(_Residual(layer), given)
        found.append([it.operators for it in plan_graph(graph, H200).plan.kernels])
    usual, transposed = found
    assert usual == [("conv2d", "bias", "add", "relu")]
    assert transposed == [("conv_transpose2d",), ("bias", "add", "relu")]


def test_every_convolution_with_a_batch_can_be_ours() -> None:
    assert _plan(nn.Conv2d(64, 64, 3), 1, 64, 9, 9, library=Library.NEVER) == [_THREE]
    half = nn.Conv2d(64, 64, 3, dtype=torch.bfloat16)
    graph = capture_module(half, (torch.empty(2, 64, 9, 9, dtype=torch.bfloat16),))
    (kernel,) = plan_graph(graph, H200, Library.NEVER).plan.kernels
    assert kernel.anchor.rounding is Rounding.SHORT
    assert _plan(nn.Conv2d(64, 64, 3), 64, 28, 28, library=Library.NEVER) == ["library"]
