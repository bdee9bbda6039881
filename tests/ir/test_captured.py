"""Graphs and files at captured sizes alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.codegen.cuda import cuda_source
from kernelwright.compiling import Compiled, Sizes, compile_problem, write_candidate
from kernelwright.emulation import emulate
from kernelwright.ir.captured import at_captured_sizes
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.ir.types import TensorType
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.problem.resizing import resize
from kernelwright.schedule import Library, plan_graph
from kernelwright.tune.plans import with_configs
from kernelwright.verify.cases import Case

EXAMPLES = Path(__file__).parents[2] / "examples"


class Mean(nn.Module):
    def forward(self, x: torch.Tensor, parts: int) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, x.shape[1] // parts).mean(1) * x.shape[0]


def _compiled(name: str, sizes: Sizes, **constants: int) -> Compiled:
    problem = resize(load_problem(EXAMPLES / f"{name}.py"), constants)
    return compile_problem(problem, H200, Library.NEVER, sizes=sizes)


def test_sizes_are_numbers_unless_a_number_of_the_call_tells_them() -> None:
    graph = capture_module(Mean(), [torch.ones(6, 8), 4])
    (number,) = (symbol.name for symbol in graph.symbols if symbol.dim is None)
    nodes = at_captured_sizes(graph).nodes
    dims = [dim for node in nodes if isinstance(node.type, TensorType) for dim in node.type.shape]
    assert str(nodes[0].type) == "f32[6, 8]"
    assert all(dim.is_static != (number in dim.text) for dim in dims)
    assert not all(dim.is_static for dim in dims)


def test_other_sizes_are_refused_before_any_launch(tmp_path: Path) -> None:
    path = tmp_path / "scalar_mul_new.py"
    write_candidate(_compiled("scalar_mul", Sizes.CAPTURED, M=13, N=33), path)
    done = emulate(path, Case.parse("seed=1"))
    assert done.outputs[0].shape == (13, 33) and not done.findings
    with pytest.raises(ValueError, match=r"expected shape \(13, 33\), got \(14, 33\)"):
        emulate(path, Case.parse("seed=1 size:M=14"))


def test_a_product_has_no_variant_for_other_sizes(tmp_path: Path) -> None:
    texts = {}
    for sizes in Sizes:
        path = tmp_path / f"{sizes.value}.py"
        texts[sizes] = write_candidate(_compiled("matmul", sizes), path).source
    assert "general_kernel" in texts[Sizes.ANY] and "general_kernel" not in texts[Sizes.CAPTURED]


_LINES = {
    "matmul": {Sizes.ANY: 2485, Sizes.CAPTURED: 2305},
    "matmul_transposed_both": {Sizes.ANY: 2485, Sizes.CAPTURED: 2305},
    "linear_relu_div": {Sizes.ANY: 2675, Sizes.CAPTURED: 2565},
}
"""Lines of a product's file, at most: a person reads it from the top."""


@pytest.mark.parametrize("name", _LINES)
def test_the_file_of_a_product_is_no_longer_than_it_was(name: str, tmp_path: Path) -> None:
    for sizes, most in _LINES[name].items():
        source = write_candidate(_compiled(name, sizes), tmp_path / "product_new.py").source
        assert len(source.splitlines()) <= most, sizes


@pytest.mark.parametrize(("m", "k", "n"), [(130, 40, 264), (256, 260, 128)])
def test_a_product_that_takes_any_strides_has_one_variant_alone(
    m: int, k: int, n: int, tmp_path: Path
) -> None:
    sizes = {"M": m, "K": k, "N": n}
    compiled = _compiled("matmul", Sizes.CAPTURED, **sizes)
    config = TensorCoreConfig(block_n=128, feed=Feed.AHEAD, stages=3, cluster=2, least_ahead=0)
    plan = with_configs(compiled.plan, {"matmul": config})
    path = tmp_path / "matmul_new.py"
    source = write_candidate(replace(compiled, plan=plan), path).source
    assert "general_kernel" not in source and "GemmVariant" not in source
    # Where whole tiles hold the result there is no text for its edges.
    assert ("has_column_vectors" in source) is (m == 130)
    at = " ".join(f"size:{name}={size}" for name, size in sizes.items())
    for how in ("layout=strided", "layout=misaligned", "distribution=nan", "distribution=infinite"):
        case = Case.parse(f"seed=1 {how} {at}")
        done, wanted = emulate(path, case), emulate(EXAMPLES / "matmul.py", case)
        assert not done.findings
        torch.testing.assert_close(
            done.outputs[0], wanted.outputs[0], rtol=2e-6, atol=0, equal_nan=True
        )


def test_a_product_too_small_for_its_variant_has_another(tmp_path: Path) -> None:
    compiled = _compiled("matmul", Sizes.CAPTURED, M=130, K=40, N=264)
    config = TensorCoreConfig(
        block_n=128, feed=Feed.SPLIT, stages=3, cluster=2, min_products=130 * 40 * 264 + 1
    )
    assert "general_kernel" in cuda_source(with_configs(compiled.plan, {"matmul": config}))


class TwoProducts(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ x, y @ y


def test_a_product_that_launches_of_several_sizes_share_has_a_variant_for_small_ones() -> None:
    for size, has_small in ((512, False), (256, True)):
        inputs = [torch.ones(512, 512), torch.ones(size, size)]
        graph = at_captured_sizes(capture_module(TwoProducts(), inputs))
        plan = plan_graph(graph, H200, Library.NEVER).plan
        assert len(plan.kernels) == 1
        assert ("small_kernel" in cuda_source(plan)) is has_small
