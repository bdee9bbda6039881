"""A module's kernels as a library: built in parts where nvcc is, once for all modules."""

import queue
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright import module, module_text
from kernelwright.codegen import emit_module, translation_units
from kernelwright.codegen.cuda import kernel_unit
from kernelwright.emulator import extension
from kernelwright.ir.plan import Plan
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.schedule import plan_graph
from kernelwright.toolchain import cuda
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
    units = tuple(translation_units(program_of(plan)))
    assert len(units) == len(plan.kernels) + 1 == 3
    heard: list[tuple[int, int]] = []
    made = module_text.text_module(text.source, units, lambda *it: heard.append(it))
    library = made._library()
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert library.error_name(2).decode() == "cudaErrorMemoryAllocation"
    launched = [f"launch_{kernel.name}" for kernel in plan.kernels]
    for name in [*launched, *made._SCHEMAS]:
        assert hasattr(library, name)
    # It is found again by who has the text alone.
    assert not list(cache.glob("extensions/*"))


class _Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = x.softmax(-1).cumsum(0).reshape(x.shape[0], 4, 8)
        return sums.transpose(1, 2).softmax(-1) @ sums[0]


def _plan(model: nn.Module) -> Plan:
    return plan_graph(module.capture_in_memory(model, (torch.rand(64, 32),), {}), H200).plan


class _ShortFirst(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0).softmax(-1)


def test_units_are_made_one_after_the_other_the_longest_kernels_first() -> None:
    plan = _plan(_ShortFirst())
    assert [kernel.name for kernel in plan.kernels] == ["cumsum", "softmax"]
    units = translation_units(program_of(plan))
    assert "int launch_softmax(const int64_t* words) {" in next(units)
    assert "int launch_forward(const int64_t* words) {" in next(units)  # The calls of all.
    assert "int launch_cumsum(const int64_t* words) {" in next(units)
    with pytest.raises(StopIteration):
        next(units)


def test_calls_are_soon_compiled() -> None:
    """A network has hundreds: in place and with all that g++ can do they took half a minute."""
    (calls,) = (
        unit
        for unit in translation_units(program_of(_plan(_Chain())))
        if "int launch_forward(const int64_t* words) {" in unit
    )
    views = re.findall(r"^(.*)Tensor \w+\((?:const Tensor&|void\*) ", calls, re.MULTILINE)
    assert len(views) > 2 and set(views) == {"__noinline__ "}
    assert '__attribute__((optimize("O1"))) void run_forward(Run& run)' in calls


def test_parts_are_compiled_while_the_whole_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, begun = _plan(_Two()), queue.Queue[str]()
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "_compile_object", lambda text, arch: begun.put(text))
    with module_text.compiled_ahead(plan, torch.device("cuda")):
        found = [begun.get(timeout=60) for _ in range(3)]
    assert sorted(found) == sorted(module_text.units_of(plan))
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", extension.load_inline)
    for device in ("cuda", "cpu"):  # The first is the emulator's.
        with module_text.compiled_ahead(plan, torch.device(device)):
            pass
    time.sleep(0.5)
    assert begun.empty()


def test_a_text_is_written_once_for_a_plan(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "_compile_object", lambda text, arch: None)
    model, plan, card = _Two(), _plan(_Two()), torch.device("cuda")
    source = module_text.source_of(model, plan, card, lambda done, total: None)
    assert source == emit_module("_Two", "self, x", plan).source
    (folder,) = cache.glob("built/module/*")
    assert len(list(folder.glob("*.cu"))) == len(plan.kernels) + 1
    monkeypatch.setattr(module_text, "emit_module", None)
    assert module_text.source_of(model, _plan(_Two()), card, lambda done, total: None) == source
    shutil.rmtree(folder)  # As cleaning does.
    with pytest.raises(TypeError):
        module_text.source_of(model, plan, card, lambda done, total: None)


def test_texts_of_other_plans_and_for_the_cpu_are_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "_compile_object", lambda text, arch: None)
    for model in (_Two(), _Chain()):
        for card in (torch.device("cuda"), torch.device("cpu")):
            source = module_text.source_of(model, _plan(model), card, lambda done, total: None)
            name = type(model).__name__
            assert source == emit_module(name, "self, x", _plan(model)).source
    assert len(list(cache.glob("built/text/*"))) == 2


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kernel_that_only_copies_compiles_alone(dtype: torch.dtype) -> None:
    """An embedding computes nothing: of its element type it needs the declaration alone."""
    model, tokens = nn.Embedding(50, 24).to(dtype), torch.randint(0, 50, (8, 16))
    plan = plan_graph(module.capture_in_memory(model, (tokens,), {}), H200).plan
    (kernel,) = plan.kernels
    assert compile_check(kernel_unit(plan, kernel.name)).kernels
