"""nvcc takes the CUDA text of every example for an H200, and no kernel spills registers.

Nor does ptxas make tensor-core products wait for one another: it says so in remarks.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from kernelwright.capture import capture, capture_module
from kernelwright.codegen.cuda import cuda_source, kernel_unit
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.kinds import Conv
from kernelwright.ir.plan import Plan
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, plan_graph, ranked_configs, schedule
from kernelwright.schedule.conv_or_library import Convolutions
from kernelwright.schedule.planning import OPEN
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check
from kernelwright.tune.plans import with_configs

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")

_EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples").glob("*.py")
    if not path.stem.endswith("_new")
)


def test_there_are_examples() -> None:
    assert len(_EXAMPLES) >= 5


def _expect_no_losses(plan: Plan, *, spilled_bytes: int = 0) -> None:
    _expect_no_losses_in(cuda_source(plan), spilled_bytes)


def _expect_no_losses_in(text: str, spilled_bytes: int = 0) -> None:
    report = compile_check(text, arch="sm_90a")
    assert len(report.kernels) >= 1
    spilling = [kernel for kernel in report.spilling if kernel.spill_store_bytes > spilled_bytes]
    assert [str(kernel) for kernel in spilling] == []
    losses = [text for text in report.remarks if "Performance Loss" in text or "C7519" in text]
    assert losses == []


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_compiles_without_spills(path: Path) -> None:
    _expect_no_losses(schedule(rewrite(capture(load_problem(path))).graph, H200))


class Layer(torch.nn.Module):
    """A product that is read along K on one side and along N on the other, with one operand."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y + bias)


class Residual(torch.nn.Module):
    """The same with two."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y + bias) + x


@cache
def _layer(dtype: torch.dtype, module: type[torch.nn.Module] = Layer) -> Plan:
    arguments = [torch.zeros(size, size, dtype=dtype) for size in (2048, 2048)]
    graph = rewrite(capture_module(module(), (*arguments, torch.zeros(2048, dtype=dtype)))).graph
    return schedule(graph, H200, Library.NEVER)


def _variants(dtype: torch.dtype) -> list[TensorCoreConfig]:
    """One of each feed, side and width."""
    (kernel,) = _layer(dtype).kernels
    ranked = ranked_configs(kernel, H200)
    return [
        c
        for c in ranked
        if isinstance(c, TensorCoreConfig) and (c.cluster == 2 or c.feed is Feed.INSIDE)
    ]


_NARROW, _MIDDLE = 64, 128
"""Columns of a tile."""


def _compiled() -> Iterator[tuple[torch.dtype, TensorCoreConfig]]:
    """Each feed and side, each width of 16 bits in one of both types, and K in slices.

    Where one factor is split in the product the wide tile stands for the narrow one, which needs
    fewer registers; the narrow one of two that are there already has K in slices.
    """
    for config in _variants(torch.float32):
        if config.block_n != _NARROW:
            yield torch.float32, config
        elif config.feed is Feed.SPLIT:
            yield torch.float32, replace(config, slices=3)
    types = {_MIDDLE: torch.bfloat16}
    for width in (256, _MIDDLE, _NARROW):
        dtype = types.get(width, torch.float16)
        yield from ((dtype, it) for it in _variants(dtype) if it.block_n == width)


@pytest.mark.parametrize(
    ("dtype", "config"), [pytest.param(*it, id=f"{it[0]} {it[1]}") for it in _compiled()]
)
def test_tensor_cores_are_not_kept_waiting(dtype: torch.dtype, config: TensorCoreConfig) -> None:
    layer = _layer(dtype)
    _expect_no_losses(with_configs(layer, {layer.kernels[0].name: config}))


def test_every_way_to_feed_tensor_cores_is_compiled() -> None:
    compiled = [(dtype, it.feed, it.transposed) for dtype, it in _compiled()]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        ways = {(dtype, it.feed, it.transposed) for it in _variants(dtype)}
        assert ways and ways <= set(compiled)
    assert {it.block_n for _, it in _compiled()} == {_NARROW, _MIDDLE, 256}
    assert any(it.slices > 1 for _, it in _compiled())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_more_operands_spill_no_more_than_addresses(dtype: torch.dtype) -> None:
    # Kept from one tile to the next: nothing that the loop over K touches.
    _expect_no_losses(_layer(dtype, Residual), spilled_bytes=48)


class Places(torch.nn.Module):
    """A convolution whose result and that of another one get norms of their own and are summed, for
    a third one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv2d(*channels, 1, stride, bias=False)
            for *channels, stride in ((64, 256, 1), (256, 256, 2))
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(256) for _ in range(2))
        self.reader = torch.nn.Conv2d(256, 64, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first, second = (
            norm(convolve(it))
            for norm, convolve, it in zip(self.norms, self.convolutions, (x, y), strict=True)
        )
        result: torch.Tensor = self.reader(torch.relu(first + second))
        return result


def test_products_of_patches_in_tf32() -> None:
    """Nine operands join the sums: of each width of a tile one configuration."""
    given = torch.zeros(32, 64, 28, 28), torch.zeros(32, 256, 56, 56)
    graph = capture_module(Places().eval(), given)
    plan = plan_graph(graph, H200, choices=replace(OPEN, by_place=True)).plan
    kernel = max(plan.kernels, key=lambda it: len(it.inputs))
    ranked = [it for it in ranked_configs(kernel, H200) if isinstance(it, TensorCoreConfig)]
    for width in (256, 192, _MIDDLE):
        config = next(it for it in ranked if it.block_n == width and it.feed.is_direct)
        unit = kernel_unit(with_configs(plan, {kernel.name: config}), kernel.name)
        # Kept from one tile to the next, as above.
        _expect_no_losses_in(unit, spilled_bytes=80)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_cards_take_the_same_file(arch: str) -> None:
    kernels = compile_check(cuda_source(_layer(torch.float32)), arch=arch).kernels
    assert len(kernels) == 3  # the product, what splits its factors, and what it leaves


class Rows(torch.nn.Module):
    """Long rows in parts with an operand of one value a column, and rows on chip."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * y).clamp(min=0).mean(), x.softmax(1)


class Around(torch.nn.Module):
    """Running totals and poolings, with steps before and after them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pooled = torch.nn.functional.max_pool1d(x[None].relu(), 4, 2)
        return torch.cumsum(x * y, 1), pooled * 2


@pytest.mark.parametrize("module", [Rows, Around])
def test_what_memory_limits_compiles_without_spills(module: type[torch.nn.Module]) -> None:
    arguments = (torch.zeros(4096, 8192), torch.zeros(8192))
    graph = rewrite(capture_module(module(), arguments)).graph
    plan = schedule(graph, H200)
    assert len(plan.kernels) == 2
    _expect_no_losses(plan)


class Normed(torch.nn.Module):
    """A convolution of 16 bits, a norm and a step that rounds before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(128, 128, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def test_roundings_of_a_convolution_keep_its_products_in_flight() -> None:
    """What was rounded where it is stored, too, made ptxas wait for each product."""
    module, x = Normed().eval().bfloat16(), torch.rand(32, 128, 28, 28, dtype=torch.bfloat16)
    graph = rewrite(capture_module(module, (x,))).graph
    ours = {node.name: Rounding.SHORT for node in graph.nodes if isinstance(node.kind, Conv)}
    plan = schedule(graph, H200, Library.NEVER, convolutions=Convolutions(left={}, ours=ours))
    assert len(plan.kernels) == 1
    # The kernel on the CUDA cores, which is for any sizes, spills a few.
    _expect_no_losses(plan, spilled_bytes=8)


class Depthwise(torch.nn.Module):
    """A convolution of each channel by itself, with steps before or after it."""

    def __init__(self, *, size: int, stride: int, is_activated: bool) -> None:
        super().__init__()
        conv = torch.nn.Conv2d(64, 64, size, stride, size // 2, groups=64, bias=False)
        before = (torch.nn.BatchNorm2d(64), torch.nn.SiLU(), conv)
        after = (conv, torch.nn.BatchNorm2d(64), torch.nn.GELU())
        self.steps = torch.nn.Sequential(*(before if is_activated else after)).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)


@pytest.mark.parametrize(
    ("size", "stride", "side", "dtype", "is_activated"),
    [
        (3, 1, 28, torch.float32, True),
        (3, 2, 112, torch.float16, True),
        (5, 1, 57, torch.bfloat16, False),
        (7, 1, 56, torch.bfloat16, False),
        (7, 1, 14, torch.float32, False),
    ],
)
def test_depthwise_convolutions_compile_without_spills(
    size: int, stride: int, side: int, dtype: torch.dtype, is_activated: bool
) -> None:
    module = Depthwise(size=size, stride=stride, is_activated=is_activated).to(dtype)
    x = torch.zeros(32, 64, side, side, dtype=dtype)
    plan = schedule(rewrite(capture_module(module, (x,))).graph, H200)
    configs = [k.config for k in plan.kernels if isinstance(k.config, WindowConfig)]
    assert [config.way for config in configs] == [WindowWay.BANDS]
    _expect_no_losses(plan)


@pytest.mark.parametrize(
    ("size", "stride", "dtype"),
    [(3, 1, torch.bfloat16), (3, 2, torch.float16), (5, 2, torch.float32), (7, 1, torch.bfloat16)],
)
def test_depthwise_convolutions_of_last_channels_compile_without_spills(
    size: int, stride: int, dtype: torch.dtype
) -> None:
    """Norms and activations before them and after, between convolutions of the library's."""
    norm, activation = torch.nn.BatchNorm2d, torch.nn.SiLU
    depthwise = torch.nn.Conv2d(64, 64, size, stride, size // 2, groups=64, bias=False)
    steps = (norm(64), activation(), depthwise, norm(64), activation())
    first, last = torch.nn.Conv2d(16, 64, 3, bias=False), torch.nn.Conv2d(64, 16, 3)
    module = torch.nn.Sequential(first, *steps, last, activation()).eval().to(dtype)
    graph = rewrite(capture_module(module, (torch.zeros(32, 16, 114, 114, dtype=dtype),))).graph
    names = [node.name for node in graph.nodes if isinstance(node.kind, Conv)]
    left = Convolutions(left=dict.fromkeys(names, "as it is"), ours={})
    plan = schedule(graph, H200, convolutions=left)
    (kernel,) = (it for it in plan.kernels if isinstance(it.config, WindowConfig))
    assert kernel.configured(WindowConfig).way is WindowWay.CHANNELS
    report = compile_check(kernel_unit(plan, kernel.name), arch="sm_90a")
    assert len(report.kernels) == 2
    assert [str(it) for it in report.kernels if it.stack_bytes or it.spills] == []
