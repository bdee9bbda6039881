"""What the guard of float32 products on tensor cores has to see, on the emulator."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.schedule import Library
from kernelwright.tune.plans import with_configs

_SPLIT = TensorCoreConfig(block_n=128, feed=Feed.SPLIT, stages=3, cluster=2)
_CONVERT = replace(_SPLIT, feed=Feed.CONVERT)
_PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return {expression}


def get_inputs():
    return [torch.rand(384, 40), torch.rand(40, 384)]


def get_init_inputs():
    return []
"""

_RUN = """\
import torch
from kernelwright.emulator import Session

with Session(order_seed=1, threads=1) as session, torch.no_grad():
    import emitted
    torch.manual_seed(0)
    a, b = torch.randn(384, 40), torch.randn(40, 384)
    {fill}
    result = emitted.ModelNew()(a, b).double()
    a, b = a.double(), b.double()
    exact = {expression}
    finite = exact.isfinite()
    assert torch.equal(result.isnan(), exact.isnan())
    assert torch.equal(result[~finite], exact[~finite])
    error = (result - exact).abs() / (a.abs() @ b.abs()).nan_to_num(1, 1)
    assert session.findings == ()
print(error[finite].max().item())
"""


@pytest.mark.parametrize(
    ("expression", "fill", "config"),
    [
        # A row that becomes zero when it is scaled for the others.
        ("a @ b", "a *= 1e30; a[7] = torch.randn(40) * 1e-30", _SPLIT),
        ("a @ b", "a *= 1e30; a[7] = torch.randn(40) * 1e-30", _CONVERT),
        # One that has zeros, too.
        ("a @ b", "a *= 1e30; a[7] = torch.randn(40) * 1e-30 * (torch.rand(40) < 0.7)", _SPLIT),
        # Rows that only tiles without a result would read.
        ("torch.triu(a @ b)", "a[300, 3] = torch.inf", _CONVERT),
        ("torch.tril(a @ b)", "b[:, 300] *= 1e-12", replace(_CONVERT, transposed=True)),
    ],
)
def test_hard_values_are_seen(
    expression: str,
    fill: str,
    config: TensorCoreConfig,
    tmp_path: Path,
    run_script: Callable[..., Any],
) -> None:
    _emit(_PROBLEM.format(expression=expression), config, tmp_path)
    script = tmp_path / "run.py"
    script.write_text(_RUN.format(expression=expression, fill=fill))
    assert run_script(script) < 1e-6


_SCATTERED = """\
import torch
from kernelwright.emulator import Session

with Session(order_seed=1, threads=1) as session, torch.no_grad():
    import emitted
    torch.manual_seed(0)
    a, b = torch.rand(128, 256), torch.rand(256, 16)
    without, small = a.clone(), torch.randperm(64)[:33]
    a[2 * small, 3 * small] = 1e-9  # no two of them near each other
    without[2 * small, 3 * small] = 0
    found, expected = (emitted.ModelNew()(it, b) for it in (a, without))
    assert not session.findings
print(int((found != expected).sum()))
"""


def test_scattered_small_numbers_stay_on_the_tensor_cores(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    # 33 of 36,864. The CUDA cores, where 32 and one in 2^18 was too many, give other bits.
    sizes = _PROBLEM.replace("384, 40", "128, 256").replace("40, 384", "256, 16")
    _emit(sizes.format(expression="a @ b"), replace(_SPLIT, cluster=1), tmp_path)
    script = tmp_path / "run.py"
    script.write_text(_SCATTERED)
    assert run_script(script) == 0


def _emit(text: str, config: TensorCoreConfig, folder: Path) -> None:
    problem = folder / "problem.py"
    problem.write_text(text)
    compiled = compile_problem(load_problem(problem), H200, Library.NEVER)
    (kernel,) = compiled.plan.kernels
    plan = with_configs(compiled.plan, {kernel.name: config})
    write_candidate(replace(compiled, plan=plan), folder / "emitted.py")
