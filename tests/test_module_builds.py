"""A module's kernels as a library: built in parts where nvcc is, once for all modules."""

from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright import module
from kernelwright.codegen import emit_module, translation_units
from kernelwright.codegen.cuda import kernel_unit
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.schedule import plan_graph
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check


class _Two(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).softmax(-1).cumsum(0)


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_kernels_are_compiled_in_parts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    arguments = (torch.rand(64, 32),)
    plan = plan_graph(module.capture_in_memory(_Two(), arguments, {}), H200).plan
    text = emit_module("Two", "self, x", plan)
    units = translation_units(program_of(plan))
    assert len(units) == len(plan.kernels) + 1 == 3
    heard: list[tuple[int, int]] = []
    made = module._text_module(text.source, units, lambda *it: heard.append(it))
    library = made._library()
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert library.error_name(2).decode() == "cudaErrorMemoryAllocation"
    launched = [f"launch_{kernel.name}" for kernel in plan.kernels]
    for name in [*launched, *made._SCHEMAS]:
        assert hasattr(library, name)
    # It is found again by who has the text alone.
    assert not list(cache.glob("extensions/*"))


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kernel_that_only_copies_compiles_alone(dtype: torch.dtype) -> None:
    """An embedding computes nothing: of its element type it needs the declaration alone."""
    model, tokens = nn.Embedding(50, 24).to(dtype), torch.randint(0, 50, (8, 16))
    plan = plan_graph(module.capture_in_memory(model, (tokens,), {}), H200).plan
    (kernel,) = plan.kernels
    assert compile_check(kernel_unit(plan, kernel.name)).kernels
