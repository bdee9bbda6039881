"""What would be done to a problem, as text and JSON."""

from pathlib import Path

from kernelwright.machine import H200
from kernelwright.pipeline import compile_problem
from kernelwright.problem import load_problem
from kernelwright.report.plan import plan_json

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
