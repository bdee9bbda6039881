"""What is poisoned before a call."""

from typing import Any

import pytest
import torch

from kernelwright.worker import subject

MIB = 1 << 20


def test_free_memory_is_asked_for_as_it_is_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(kind: str, *blocks: tuple[int, str]) -> dict[str, Any]:
        found = [{"size": size, "state": state} for size, state in blocks]
        return {"device": 0, "segment_type": kind, "blocks": found}

    snapshot = [
        segment("small", (2 * MIB, "inactive")),
        segment("small", (MIB // 2, "active_allocated"), (MIB + MIB // 2, "inactive")),
        segment("large", (20 * MIB, "inactive"), (5 * MIB, "active_allocated")),
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: snapshot)
    unused = subject._unused_blocks(torch.device("cuda:0"))
    assert sorted(unused) == [MIB // 2, MIB, MIB, MIB, 20 * MIB]


def test_what_is_there_already_is_not_asked_for_again() -> None:
    unused = [20 * MIB, MIB, 70 * MIB]
    assert subject._missing([20 * MIB, 20 * MIB], unused) == [20 * MIB]
    assert subject._missing([69 * MIB], unused) == []
    assert subject._missing([30 * MIB], unused) == [30 * MIB]
    assert subject._missing([MIB, MIB // 2], [3 * MIB, MIB]) == [MIB // 2]
