"""benchmarks/odd_sizes.py: its problems, and what its records come to."""

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def odd_sizes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(_BENCHMARKS))
    return importlib.import_module("odd_sizes")


def test_eighty_problems_have_odd_sizes_and_each_case_round_ones(odd_sizes: Any) -> None:
    found = list(odd_sizes.problems())
    assert sum(it.is_odd for it in found) == 80
    assert len({it.name for it in found}) == len(found) == 120
    for problem in found:
        names = [node.name for node in ast.parse(problem.text).body if hasattr(node, "name")]
        assert names == ["Model", "get_inputs", "get_init_inputs"]
        # Half a case's sizes would say nothing.
        rounded = all(size % 8 == 0 or size == 1 for size in problem.sizes)
        assert rounded is not problem.is_odd, problem.name


def test_a_problem_is_below_where_either_call_is_faster(odd_sizes: Any) -> None:
    def timed(name: str, ours: float, compiled: float, *, is_odd: bool) -> dict[str, Any]:
        times = {"ours_ms": ours, "eager_ms": 4.0, "compiled_ms": compiled, "floor_ms": 1.0}
        return {"problem": name, "is_odd": is_odd, "verified": True, **times}

    problems = [
        timed("slow", 2.0, 1.0, is_odd=True),
        timed("fast", 1.0, 2.0, is_odd=True),
        timed("even", 1.0, 1.0, is_odd=False),
        {"problem": "ended", "is_odd": True, "failed": "its process ended"},
    ]
    found = odd_sizes.summary([{"task": "case", "family": "rows", "problems": problems}])
    assert found["odd"]["problems"] == 2 and found["odd"]["over best"] == 1.0
    assert found["round"]["by family"] == {"rows": 1.0}
    assert found["below"] == ["slow: 0.500"]
