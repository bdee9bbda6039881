"""What is poisoned before a call."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.problem import load_problem
from kernelwright.verify.cases import Case, Weights
from kernelwright.worker.roles import subject
from kernelwright.worker.roles.candidate import Candidate
from kernelwright.worker.roles.kernel_checks import Unwatched

MIB = 1 << 20


def test_free_memory_is_asked_for_as_it_is_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(kind: str, *blocks: tuple[int, str]) -> dict[str, Any]:
        found = [{"size": size, "state": state} for size, state in blocks]
        stream = 7 if kind == "of another stream" else 0
        return {"device": 0, "stream": stream, "segment_type": kind, "blocks": found}

    snapshot = [
        segment("small", (2 * MIB, "inactive")),
        segment("small", (MIB // 2, "active_allocated"), (MIB + MIB // 2, "inactive")),
        segment("large", (20 * MIB, "inactive"), (5 * MIB, "active_allocated")),
        segment("of another stream", (40 * MIB, "inactive")),
    ]
    here = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: here)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: snapshot)
    unused = subject._unused_blocks(torch.device("cuda:0"))
    assert sorted(unused) == [MIB // 2, MIB, MIB, MIB, 20 * MIB]


def test_what_is_there_already_is_not_asked_for_again() -> None:
    unused = [20 * MIB, MIB, 70 * MIB]
    assert subject._missing([20 * MIB, 20 * MIB], unused) == [20 * MIB]
    assert subject._missing([69 * MIB], unused) == []
    assert subject._missing([30 * MIB], unused) == [30 * MIB]
    assert subject._missing([MIB, MIB // 2], [3 * MIB, MIB]) == [MIB // 2]


def test_a_block_as_large_as_the_last_result_is_poisoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kernel that is silent leaves the zeros of new memory, which may be the result."""
    problem = tmp_path / "grows.py"
    problem.write_text(PROBLEM)
    candidate_file = tmp_path / "grows_new.py"
    candidate_file.write_text(PROBLEM.replace("class Model", "class ModelNew"))
    asked: list[int] = []
    monkeypatch.setattr(subject.Subject, "poison", lambda _, most: asked.append(most))
    found = Candidate(load_problem(problem), candidate_file, torch.device("cpu"), Unwatched())
    found.run(Case(), tmp_path)
    assert asked == [4 * 5, 4 * 5 * 7]


@pytest.mark.parametrize("on_device", [False, True])
def test_a_module_is_made_ahead_where_that_needs_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_device: bool
) -> None:
    path = tmp_path / "grows.py"
    path.write_text(PROBLEM)
    here = subject.Subject(load_problem(path), torch.device("cpu"))
    made: list[nn.Module] = []

    def make(args: object, keywords: object) -> nn.Module:
        if made:
            raise ValueError("only one")
        made.append(nn.Identity())
        return made[0]

    monkeypatch.setattr(subject.Subject, "_allocations", lambda _: len(made) * on_device)
    here.construct(Case(), make)
    made.clear()
    case = Case(weights=Weights.OTHER)
    here.make(case, make)
    assert len(made) == (0 if on_device else 1)
    assert here.construct(case, make).module is made[0]
    here.make(Case(), make)  # which raises nothing: `construct` does
    with pytest.raises(ValueError, match="only one"):
        here.construct(Case(), make)


@pytest.mark.parametrize(
    ("unused", "free", "given_back"),
    [(90, 0, False), (900, 5000, False), (900, 4000, True)],
)
def test_memory_is_kept_while_others_have_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused: int, free: int, given_back: bool
) -> None:
    path = tmp_path / "grows.py"
    path.write_text(PROBLEM)
    empties: list[bool] = []
    card = SimpleNamespace(total_memory=9600 * MIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: (100 + unused) * MIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100 * MIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * MIB, 9600 * MIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: empties.append(True))
    subject.Subject(load_problem(path), torch.device("cuda:0")).release()
    assert bool(empties) is given_back


PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.clamp(max=0.0).expand(7, 5).contiguous()


def get_inputs():
    return [torch.rand(1, 5)]


def get_init_inputs():
    return []
"""
