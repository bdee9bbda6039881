"""A quick part of benchmarks/captures.py: what it records of modules of torch.nn."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("captures")


def test_captured_modules_agree_and_refusals_are_sentences(captures: Any) -> None:
    modules = importlib.import_module("capture_corpus.of_torch").MODULES
    for name in ("GRUCell", "MaxPool2d, indices", "BatchNorm2d, training"):
        row = captures._row(modules[name])
        assert row["captured"]
        assert row["graph"]["agrees"] and row["plan"]["agrees"]
    refused = captures._row(modules["TransformerEncoder, padding"])
    assert "nested tensors" in refused["refusal"]
    assert "enable_nested_tensor=False" in refused["next_step"]


def test_what_is_recorded_agrees() -> None:
    recorded = json.loads((BENCHMARKS / "results" / "captures.json").read_text())
    assert recorded["summary"]["modules"] >= 100
    assert recorded["summary"]["captured"] == recorded["summary"]["agree"]
    assert not [row["module"] for row in recorded["modules"] if "fault" in row]
