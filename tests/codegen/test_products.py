"""What the text of a product holds in each family."""

import re
from dataclasses import replace

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.codegen.cuda import cuda_source
from kernelwright.ir.plan import Plan
from kernelwright.ir.product_configs import (
    Feed,
    GemmConfig,
    Major,
    ProductConfig,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule
from kernelwright.tune.plans import with_configs

TENSOR_CORES = TensorCoreConfig(block_n=128, feed=Feed.SPLIT, stages=3, cluster=2)
THIN = ThinConfig(
    rows=1, columns=4, step=4, threads=256, resident=4, multiprocessors=132, wide=Major.MN
)
SIMT = GemmConfig(block_m=64, block_n=64, block_k=16, thread_m=8, thread_n=4, stages=2)


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def text(config: ProductConfig, dtype: torch.dtype = torch.float32) -> str:
    arguments = (torch.zeros(64, 96, dtype=dtype), torch.zeros(96, 80, dtype=dtype))
    graph = rewrite(capture_module(Product(), arguments)).graph
    plan: Plan = schedule(graph, H200, Library.NEVER)
    return cuda_source(with_configs(plan, {"matmul": config}))


def test_only_sizes_ask_for_a_large_tile_in_any_strides() -> None:
    """Rows of a product of arguments may have any length; of a layer's, none but the captured."""
    direct = replace(TENSOR_CORES, feed=Feed.DIRECT)

    def of_linear() -> str:
        layer, rows = torch.nn.Linear(96, 80, False).bfloat16(), torch.zeros(64, 96).bfloat16()
        graph = rewrite(capture_module(layer, (rows,))).graph
        plan: Plan = schedule(graph, H200, Library.NEVER)
        (kernel,) = plan.kernels
        return cuda_source(with_configs(plan, {kernel.name: direct}))

    def tile_in_any_strides(source: str) -> str:
        return re.findall(r"struct \w+General \{\n +static constexpr int (.*?), BLOCK_K", source)[0]

    assert tile_in_any_strides(text(direct, torch.bfloat16)) == "BLOCK_M = 64, BLOCK_N = 128"
    assert tile_in_any_strides(of_linear()) == "BLOCK_M = 32, BLOCK_N = 64"


@pytest.mark.parametrize(
    ("config", "dtype", "instruction"),
    [
        (TENSOR_CORES, torch.float32, "Wgmma128F16"),
        (replace(TENSOR_CORES, feed=Feed.DIRECT, block_n=256), torch.float16, "Wgmma256F16"),
        (replace(TENSOR_CORES, feed=Feed.DIRECT, block_n=64), torch.bfloat16, "Wgmma64Bf16"),
    ],
)
def test_only_the_instruction_in_use_is_there(
    config: TensorCoreConfig, dtype: torch.dtype, instruction: str
) -> None:
    found = {word for word in text(config, dtype).split() if word.startswith("Wgmma")}
    assert {word.strip("{;") for word in found} == {instruction}


def test_sides_change_with_how_the_factors_lie() -> None:
    assert "LHS = Major::K, RHS = Major::MN;" in text(TENSOR_CORES)
    turned = text(replace(TENSOR_CORES, transposed=True))
    assert "TRANSPOSED = true;" in turned and "LHS = Major::MN, RHS = Major::K;" in turned


class Joined(torch.nn.Module):
    def forward(
        self, a: torch.Tensor, b: torch.Tensor, column: torch.Tensor, row: torch.Tensor
    ) -> torch.Tensor:
        return torch.relu((a @ b + column) * row)


@pytest.mark.parametrize(("transposed", "masks"), [(False, "0x2, 0x1"), (True, "0x1, 0x2")])
def test_operands_of_rows_and_columns_are_known(transposed: bool, masks: str) -> None:
    """Rows are those of the config's result, which a transposed one has for columns."""
    shapes = ((64, 96), (96, 80), (80,), (64, 1))
    arguments = tuple(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes)
    plan = schedule(rewrite(capture_module(Joined(), arguments)).graph, H200, Library.NEVER)
    (kernel,) = plan.kernels
    config = replace(TENSOR_CORES, feed=Feed.TURNS, transposed=transposed)
    product = cuda_source(with_configs(plan, {kernel.name: config}))
    assert f"JoiningMasks<{masks}, 0x0>;" in product


@pytest.mark.parametrize("config", [TENSOR_CORES, THIN, SIMT], ids=["tensor", "thin", "simt"])
def test_who_needs_memory_says_how_much(config: ProductConfig) -> None:
    product = text(config)
    assert 'extern "C" int launch_matmul(' in product
    has_workspace = 'extern "C" int64_t workspace_matmul(' in product
    assert has_workspace == (config is not SIMT)


@pytest.mark.parametrize(
    "config",
    [replace(TENSOR_CORES, feed=Feed.CONVERT, slices=slices) for slices in (1, 2)],
    ids=["whole", "slices"],
)
def test_the_general_kernel_finishes_where_the_guard_speaks_late(config: ProductConfig) -> None:
    product = text(config)
    assert "finish_gemm<MatmulGeneral>" in product
    assert ("bool sum_slices(" in product) is (config.slices > 1)


def test_a_kernel_that_only_adds_follows_slices_whose_factors_are_split_before() -> None:
    product = text(replace(TENSOR_CORES, slices=2))
    assert "add_slices(problem);" in product and "gemm_plain(problem);" in product
    assert "finish_gemm" not in product


@pytest.mark.parametrize("config", [TENSOR_CORES, THIN, SIMT], ids=["tensor", "thin", "simt"])
def test_a_product_that_leaves_nothing_has_no_kernel_to_finish_it(config: ProductConfig) -> None:
    general = "gemm_plain(problem)" if config is TENSOR_CORES else "gemm_simt<MatmulGeneral>"
    assert "finish_gemm" not in text(config) and general in text(config)


class TwoProducts(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        return [a @ b, c @ c]


def test_what_one_product_has_is_there_for_all_of_the_file() -> None:
    matrices = torch.zeros(64, 96), torch.zeros(96, 80)
    sources = {}
    for name, other in (("matrix", torch.zeros(96, 96)), ("batch", torch.zeros(3, 96, 96))):
        graph = rewrite(capture_module(TwoProducts(), [*matrices, other])).graph
        sources[name] = cuda_source(schedule(graph, H200, Library.NEVER))
    assert "batch_rank" not in sources["matrix"] and "batch_rank" in sources["batch"]
    assert "ANY_" not in sources["matrix"]


def test_operands_that_join_are_there_only_where_one_does() -> None:
    assert all("load_columns" not in text(config) for config in (TENSOR_CORES, THIN, SIMT))
    graph = rewrite(capture_module(torch.nn.Linear(96, 80), [torch.zeros(64, 96)])).graph
    assert "load_columns" in cuda_source(schedule(graph, H200, Library.NEVER))


def test_device_code_of_other_families_is_left_out() -> None:
    assert "gemm_thin" not in text(TENSOR_CORES) and "wgmma" not in text(THIN)
    assert "wgmma" not in text(SIMT) and "mbarrier" not in text(SIMT)
