"""What would be done to a problem, as text and JSON."""

from pathlib import Path

import pytest

from kernelwright.compiling import compile_problem
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.report.plan import plan_json

TWICE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.softmax(x, dim=-1), torch.softmax(y, dim=-1)


def get_inputs():
    return [torch.rand(65536, 1024), torch.rand(8192, 1024)]


def get_init_inputs():
    return []
"""
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_rewrites_kernels_and_totals() -> None:
    compiled = compile_problem(load_problem(EXAMPLES / "diag_matmul.py"), H200)
    lines = list(compiled.explanation.lines())
    assert lines[0].startswith("rewritten   diag + matmul (diag_matmul.py:12)")
    assert lines[0].endswith("[algebraic]")
    assert lines[-1] == (
        "in all      134.2 MB, 0.017 GFLOP, modelled floor 0.0314 ms on NVIDIA H200"
    )


def test_json_agrees_with_the_cost_by_hand() -> None:
    compiled = compile_problem(load_problem(EXAMPLES / "matmul.py"), H200)
    facts = plan_json(compiled.rewritten, compiled.plan, compiled.machine)
    m, k, n = 2048, 8192, 4096
    assert facts["bytes"] == 4 * (m * k + k * n + m * n)
    assert facts["flops"] == 2 * m * k * n
    assert facts["floor_seconds"] == 2 * m * k * n / H200.flops["fp16x3"]
    assert [kernel["family"] for kernel in facts["kernels"]] == ["gemm"]


def test_a_kernel_of_several_launches_has_the_floor_of_all(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(TWICE)
    compiled = compile_problem(load_problem(path), H200)
    facts = plan_json(compiled.rewritten, compiled.plan, compiled.machine)
    (kernel,) = facts["kernels"]
    assert kernel["launches"] == 2
    # The first launch reads and writes 8 times as many bytes as the second.
    bytes_moved = 2 * 4 * 65536 * 1024
    assert kernel["floor_seconds"] == bytes_moved / H200.copy_bandwidth
    both = kernel["floor_seconds"] * (1 + 1 / 8)
    assert kernel["launches_floor_seconds"] == pytest.approx(both)
