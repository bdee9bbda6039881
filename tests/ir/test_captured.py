"""Graphs and files at captured sizes alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.codegen.cuda import cuda_source
from kernelwright.emulation import emulate
from kernelwright.ir.captured import at_captured_sizes
from kernelwright.ir.types import TensorType
from kernelwright.machine import H200
from kernelwright.pipeline import Compiled, Sizes, compile_problem, write_candidate
from kernelwright.problem import load_problem
from kernelwright.problem.resizing import resize
from kernelwright.schedule import Library, plan_graph
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
    assert "small_kernel" in texts[Sizes.ANY] and "small_kernel" not in texts[Sizes.CAPTURED]
    assert len(texts[Sizes.CAPTURED].splitlines()) < len(texts[Sizes.ANY].splitlines()) < 3480


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
