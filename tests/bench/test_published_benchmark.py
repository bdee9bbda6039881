"""Published candidates: unpacked, judged, and tabulated by cause."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.verify.cases import Case
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.ran_checks import NO_OWN_KERNEL
from kernelwright.verify.verdict import Check, Outcome, Status, conclude

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "judge_published.py"
REFERENCE = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(7, 5)]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def script() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def record(task: int, candidate: str | None, claimed: float | None) -> dict[str, Any]:
    return {
        "level_id": 1,
        "task_id": task,
        "ref_code": REFERENCE,
        "custom_code": candidate,
        "score_default": claimed,
    }


@pytest.fixture
def collection(script: SimpleNamespace, tmp_path: Path) -> Any:
    records = [
        record(1, REFERENCE, 2.0),
        record(2, None, None),
        record(3, REFERENCE.replace("relu(x)", "relu(x) * 2"), 4.0),
        record(5, "None", 1.25),
        record(4, REFERENCE.replace("Model", "ModelNew"), 1.5),
    ]
    path = tmp_path / "published.json"
    path.write_text("\n".join(map(json.dumps, records)))
    return script.read_collection(path)


def test_records_become_pairs_of_files(
    script: SimpleNamespace, collection: Any, tmp_path: Path
) -> None:
    assert (collection.records, collection.claims_without) == (5, 1)
    assert [it.name for it in collection.published] == ["level1/1", "level1/3", "level1/4"]
    problem, candidate = script.unpack(collection.published[1], tmp_path)
    assert problem.read_text() == REFERENCE
    assert "relu(x) * 2" in candidate.read_text()
    pick = [it.name for it in script.chosen(collection.published, [], 2, None)]
    assert pick == ["level1/1", "level1/4"]
    pick = [it.name for it in script.chosen(collection.published, ["level1/4", "level1/1"], 2, 1)]
    assert pick == ["level1/4"]


def speedup(value: float) -> dict[str, Any]:
    return {
        "baseline": "eager",
        "device": {"low": value - 0.1, "value": value, "high": value + 0.1},
    }


def test_endings_are_counted_by_cause_beside_what_was_claimed(
    script: SimpleNamespace, collection: Any, tmp_path: Path
) -> None:
    first, second, _ = collection.published
    path = tmp_path / "journal.jsonl"
    journal = script.Journal(path)
    journal.begin({"torch": "2.11", "cuda": "13.0", "commit": "old", "date": "2026-11-22T01"})
    journal.add(second, {"cause": "crashed", "summary": "killed"})
    journal = script.Journal(path)
    journal.begin({"torch": "2.11", "cuda": "13.0", "commit": "new", "date": "2026-11-23T01"})
    assert journal.has(second)
    assert not journal.has(first)
    faster, told = Status.VERIFIED_FASTER.value, [f"warning what ran: {NO_OWN_KERNEL}"]
    journal.add(
        first,
        {
            "cause": faster,
            "summary": "right",
            "told": told,
            "speedups": [speedup(1.2)],
        },
    )
    journal.add(second, {"cause": "wrong values", "summary": "output is 2 | should be 1"})
    made = script.table(collection, [json.loads(it) for it in path.read_text().splitlines()])
    assert made["by cause"] == {faster: 1, "wrong values": 1}
    assert [(row["name"], row["run"], row["claimed"]) for row in made["rows"]] == [
        ("level1/1", 1, 2.0),
        ("level1/3", 1, 4.0),
    ]
    assert script.table(collection, script.lines_of(made)) == made
    page = "\n".join(script.page(made, {}))
    assert f"| level1/1 | {faster} | 2.00 | 1.20 | 1.10 to 1.30 | never run |" in page
    assert "1 have the source of kernels that never ran" in page
    assert "0.60 of the claimed one in the median, and below half of it for 0" in page
    assert "| level1/3 | wrong values | 4.00 | output is 2 \\| should be 1 |" in page
    noted = "\n".join(script.page(made, {"level1/3": "It multiplies by two."}))
    assert "| level1/3 | wrong values | 4.00 | It multiplies by two. |" in noted


def test_what_is_wrong_for_nan_alone_has_its_own_cause(script: SimpleNamespace) -> None:
    right = Check(name="values", outcome=Outcome.PASSED, evidence="equal")
    nan = Check(
        name="values",
        outcome=Outcome.WARNING,
        evidence="NaN is not where it should be",
        status=Status.WRONG_VALUES,
        case=str(Case(distribution=Distribution.NAN)),
    )

    def cause(*checks: Check) -> str:
        verdict = conclude(checks, target="cuda", sizes={}, build_seconds=0.0)
        return str(script.cause_of(verdict))

    assert cause(right) == Status.VERIFIED.value
    assert cause(right, nan) == Status.WRONG_WHERE_NOT_FINITE.value


def test_every_recorded_refusal_was_looked_at_and_the_page_is_the_record(
    script: SimpleNamespace,
) -> None:
    record, notes = (json.loads(path.read_text()) for path in (script.RESULTS, script.NOTES))
    verified = {status.value for status in Status if status.verified}
    refused = [row["name"] for row in record["rows"] if row["cause"] not in verified]
    assert sorted(notes) == sorted(refused)
    assert script.PAGE.read_text() == "\n".join(script.page(record, notes)) + "\n"
