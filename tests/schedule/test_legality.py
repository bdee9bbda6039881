"""What goes to PyTorch's libraries because they are faster, and what does not."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.compiling import compile_problem, shrunk_for_emulator
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.problem import Budget, load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, ranked_configs, schedule
from kernelwright.tune.plans import with_configs

EXAMPLES = Path(__file__).parents[2] / "examples"


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


@pytest.mark.parametrize(
    ("left", "right", "dtype", "why"),
    [
        ((512, 64), (64, 512), torch.float32, "the library is faster"),
        ((64, 64, 8), (64, 8, 64), torch.float32, "not sure enough"),  # a few us either way
        ((64, 512, 512), (64, 512, 512), torch.float32, None),
        ((1024, 1024), (1024, 1024), torch.float32, None),
        ((256, 65536), (65536, 256), torch.float32, None),  # slices of K fill it too
        ((1, 8192), (8192, 4096), torch.float32, None),
        ((8192,), (8192, 4096), torch.float32, None),
        ((2048, 65536), (65536, 1), torch.float32, None),
        ((256, 1024), (1024, 256), torch.float32, "the library is faster"),
        ((64, 64), (64, 64), torch.float32, "the library is faster"),
        ((512, 64), (64, 512), torch.float16, None),
        ((4096, 4096), (4096, 4096), torch.bfloat16, "the library is faster"),
        ((4096, 4095), (4095, 4096), torch.bfloat16, "the library is faster"),  # rows not aligned
        ((2048, 2048), (2048, 2048), torch.float64, "the library is faster"),
        ((512, 64), (64, 512), torch.int64, "no kernel"),
    ],
)
def test_products_that_libraries_do_faster(
    left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype, why: str | None
) -> None:
    arguments = (torch.zeros(left, dtype=dtype), torch.zeros(right, dtype=dtype))
    graph = rewrite(capture_module(Product(), arguments)).graph
    plan = schedule(graph, H200)
    if why is None:
        assert [kernel.family for kernel in plan.kernels] == ["gemm"]
    else:
        assert not plan.kernels
        assert why in plan.left_to_pytorch[0].why
    forced = schedule(graph, H200, Library.NEVER)
    assert len(forced.kernels) == (0 if dtype is torch.int64 else 1)


class OfBasis(torch.nn.Module):
    def __init__(self, basis: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.basis, self.layer = basis, torch.nn.Linear(2048, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.basis(x).flatten(1))


@pytest.mark.parametrize(
    ("basis", "is_left"),
    [
        (lambda x: torch.exp(-((x.unsqueeze(-1) - 0.5) ** 2)), True),
        (torch.sigmoid, False),
        (lambda x: torch.softmax(x, -1), False),  # shares of a row
    ],
)
def test_factors_that_pairs_do_not_carry(
    basis: Callable[[torch.Tensor], torch.Tensor], is_left: bool
) -> None:
    module, x = OfBasis(basis).eval(), torch.zeros(8192, 2048)
    plan = schedule(rewrite(capture_module(module, (x,))).graph, H200)
    # The kernel would multiply exponentials far below 1 on the CUDA cores, after a first try.
    assert bool(plan.left_to_pytorch) == is_left


def test_a_small_layer_with_a_bias_is_ours() -> None:
    # cuBLAS takes 38 us: it has tiles of 128 x 64 and cuts no K where it adds a bias.
    layer, x = torch.nn.Linear(512, 512), torch.zeros(616, 512)
    assert not schedule(rewrite(capture_module(layer, (x,))).graph, H200).left_to_pytorch


@pytest.mark.parametrize(
    ("left", "right"),
    [((512, 64), (64, 512)), ((64, 64, 8), (64, 8, 64)), ((256, 1024), (1024, 256))],
)
def test_the_reason_says_what_its_numbers_say(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    graph = rewrite(capture_module(Product(), (torch.zeros(left), torch.zeros(right)))).graph
    (step,) = schedule(graph, H200).left_to_pytorch
    numbers = re.findall(r"(?:ours|modelled|library) ([0-9.e+]+) us", step.why)
    first, second = map(float, numbers)
    if step.why.startswith("the library is faster"):
        assert first <= second  # the library, ours
    else:
        assert step.why.startswith("the model is not sure enough that ours is faster")
        assert first < second  # ours, the library


@pytest.mark.parametrize("name", ["matmul", "linear_relu_div", "diag_matmul"])
def test_the_emulator_runs_the_kernels_of_the_full_sizes(name: str) -> None:
    full = compile_problem(load_problem(EXAMPLES / f"{name}.py"), H200)
    small = shrunk_for_emulator(full, Budget())
    assert small.problem.constants != full.problem.constants
    assert [k.name for k in small.plan.kernels] == [k.name for k in full.plan.kernels]
    for ours, theirs in zip(small.plan.kernels, full.plan.kernels, strict=True):
        assert ours.epilogue == theirs.epilogue
        if isinstance(theirs.config, TensorCoreConfig):
            assert ours.config == replace(theirs.config, min_products=0, least_ahead=0)
        assert str(ours.config) == str(theirs.config)
    assert not small.plan.left_to_pytorch


def test_the_emulator_runs_the_kernel_that_reads_whole_rows() -> None:
    full = compile_problem(load_problem(EXAMPLES / "matmul.py"), H200)
    (kernel,) = full.plan.kernels
    ranked = ranked_configs(kernel, H200)
    for feed, whole in ((Feed.SPLIT, False), (Feed.CONVERT, True)):
        config = next(c for c in ranked if isinstance(c, TensorCoreConfig) and c.feed is feed)
        plan = with_configs(full.plan, {kernel.name: config})
        small = shrunk_for_emulator(replace(full, plan=plan), Budget())
        assert all(size % 8 == 0 for size in small.problem.constants.values()) == whole
