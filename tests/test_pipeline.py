"""The straight line, where nothing of it needs a card."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright import env, pipeline
from kernelwright.pipeline import OptimizeOptions
from kernelwright.problem import load_problem

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(4, 4)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("asked", "words", "seen"),
    [
        (True, "", ""),
        (False, "", "3"),
        (True, "# as on .cuda()", "3"),  # such a problem is traced where it finds what it names
    ],
)
def test_a_module_is_traced_where_no_card_is_seen(
    asked: bool, words: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "relu.py"
    path.write_text(PROBLEM + words)
    found: list[str | None] = []

    def capture(problem: object) -> Any:
        found.append(pipeline.env.child_environment({}).get(env.CUDA_VISIBLE_DEVICES.name))
        return SimpleNamespace()

    monkeypatch.setenv(env.CUDA_VISIBLE_DEVICES.name, "3")
    monkeypatch.setattr(pipeline, "capture", capture)
    options = replace(OptimizeOptions(), trace_without_card=asked)
    pipeline._captured(load_problem(path), options)
    assert found == [seen]
    assert env.CUDA_VISIBLE_DEVICES.get() == ("3",)


def test_where_none_is_seen_the_driver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a suite relies on: it sets both, and PyTorch asks again and again."""

    def ask() -> int:
        raise AssertionError("the driver was asked")

    monkeypatch.setenv(env.CUDA_VISIBLE_DEVICES.name, "")
    monkeypatch.setenv(env.CUDA_CHECK.name, "1")
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", ask)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", ask, raising=False)
    assert not torch.cuda.is_available()
