"""Kernels that a card finds slower than the calls they replace go back to PyTorch; a fake card."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelwright as kw
from kernelwright import giving_back, making, pipeline
from kernelwright.api import optimize_in_memory
from kernelwright.bench.measurement import Interval, Measurement, Series, Speedup, not_measured
from kernelwright.bench.timing import Samples
from kernelwright.compiling import Compiled, compile_problem, write_candidate
from kernelwright.giving_back import MeasureParts, with_guesses_measured
from kernelwright.ir.graph import Graph
from kernelwright.ir.plan import Plan
from kernelwright.known_plans import Chosen, keep_plan, known_plan, plan_key
from kernelwright.machine import H200, Machine
from kernelwright.module import OptimizedModule, capture_in_memory
from kernelwright.pipeline import Keep, OptimizeOptions, Target, without_slower
from kernelwright.problem import load_problem
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.planning import Planned
from kernelwright.toolchain.cache import cache_root
from kernelwright.tune import parts
from kernelwright.tune.effort import Effort, effort
from kernelwright.tune.parts import CallTimer, Part, decided, kind_of, parts_of, sentence


class Net(nn.Module):
    """Two equal convolutions, one with more channels, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 64, 3, padding=1)
        self.second = nn.Conv2d(64, 64, 3, padding=1)
        self.third = nn.Conv2d(64, 128, 3, padding=1)
        self.last = nn.Linear(4096, 4096)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.third(self.second(self.first(x).relu()).relu()).relu()
        return x, torch.relu(self.last(y))


@pytest.fixture(scope="module")
def net() -> Net:
    return Net().eval()


@pytest.fixture(scope="module")
def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(8, 64, 56, 56), torch.rand(2048, 4096)


@pytest.fixture(scope="module")
def captured(net: Net, arguments: Any) -> Graph:
    return capture_in_memory(net, arguments, {})


@pytest.fixture(scope="module")
def found(captured: Graph) -> tuple[Part, ...]:
    return parts_of(plan_graph(captured, H200).plan, captured, H200)


def test_each_launch_with_one_call_is_a_part(found: tuple[Part, ...]) -> None:
    assert sorted(it.name for it in found) == ["conv2d", "conv2d", "conv2d", "linear"]
    convolutions = [it for it in found if it.name == "conv2d"]
    assert len({kind_of(it) for it in convolutions}) == 2, "equal calls are timed once"
    assert all(it.rest_seconds > 0 for it in found), "a kernel for each ReLU"


def test_what_is_clearly_slower_goes_back(found: tuple[Part, ...]) -> None:
    first, second, third, fourth = (replace(it, rest_seconds=1e-6) for it in found)
    own = {first.node: 5.2e-6, second.node: 5.05e-6, third.node: 1e-6, fourth.node: None}
    measured = decided([first, second, third, fourth], lambda it: own[it.node], lambda it: 4e-6)
    assert measured == {
        first.node: "measured 5 us, ours 5.2 us",
        second.node: None,
        third.node: None,
    }
    said = sentence(found, measured)
    assert said.startswith("2 of 3 kernels timed alone are kept")
    assert f"{first.name} measured 5 us, ours 5.2 us" in said


def test_calls_are_timed_as_the_user_made_them(
    captured: Graph, found: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []

    class Watch:
        def __init__(self, device: torch.device) -> None:
            pass

        def warm_up(self, call: Callable[[int], Any], seconds: float) -> None:
            shapes.append(tuple(call(0).shape))

        def sample(self, call: Callable[[int], Any], count: int) -> Samples:
            return Samples(device_ms=(3.0, 1.0, 2.0), host_ms=(9.0,))

    monkeypatch.setattr(parts, "Stopwatch", Watch)
    timer = CallTimer(captured, torch.device("cpu"))
    assert [timer(it) for it in found] == [2e-3] * 4
    assert sorted(shapes) == [(8, 64, 56, 56), (8, 128, 56, 56), (2048, 4096)]


# --- A module whose kernels are slower ---------------------------------------------------------


def _measured(ratio: float, host: float | None = None) -> Measurement:
    """Kernels that are so many times as fast as the model's own forward; `host`: by the wall clock,
    where that is another number."""
    wall = ratio if host is None else host
    series = Series(name="candidate", device_ms=1.0, host_ms=1.0, samples=9)
    interval = Interval(value=ratio, low=0.99 * ratio, high=1.01 * ratio)
    return replace(
        not_measured("", None, H200),
        candidate=series,
        baselines=(replace(series, name="eager"),),
        speedups=(
            Speedup(
                baseline="eager",
                device=interval,
                host=Interval(value=wall, low=0.999 * wall, high=1.001 * wall),
            ),
        ),
    )


def _optimized(
    net: Net, arguments: Any, ratios: Sequence[float | tuple[float, float]], slower: Sequence[str]
) -> tuple[OptimizedModule, list[str]]:
    """What a card makes of it: ratios call by call, and operators that are slower alone."""
    waiting = iter(it if isinstance(it, tuple) else (it, it) for it in ratios)
    stages: list[str] = []

    def measure(module: OptimizedModule) -> Any:
        def of(given: Sequence[Part], captured: Graph) -> Mapping[str, str | None]:
            slow = {it.node for it in given if it.name in slower}
            return decided(given, lambda it: 9.0 if it.node in slow else 1.0, lambda it: 5.0)

        return of

    fast = optimize_in_memory(
        *(net, arguments, None, OptimizeOptions()),
        lambda event: stages.append(event.stage),
        lambda *call: _measured(*next(waiting)),
        measure,
    )
    assert next(waiting, None) is None, "timed less often than it must be"
    return fast, stages


def test_slower_parts_go_back_and_the_rest_is_kept(net: Net, arguments: Any) -> None:
    fast, stages = _optimized(net, arguments, [0.8, 1.3], ["linear"])
    made = fast.kernelwright
    assert made.set_aside == "" and stages.count("compare") == 1
    assert made.kept.startswith(
        "3 of 4 kernels timed alone are kept, given back to PyTorch: linear"
    )
    assert made.left_to_pytorch == ("aten.linear.default: measured 5e+06 us, ours 9e+06 us",)
    assert "torch.ops.aten.linear.default" in made.source or "linear(" in made.source


def test_where_that_does_not_help_the_module_is_as_it_was(net: Net, arguments: Any) -> None:
    with pytest.warns(kw.KernelsUnusedWarning, match="not faster"):
        fast, _ = _optimized(net, arguments, [0.8, 0.9], ["conv2d"])
    assert "1 of 4" in fast.kernelwright.kept
    with pytest.warns(kw.KernelsUnusedWarning, match="not faster"):
        fast, _ = _optimized(net, arguments, [0.8], [])
    assert fast.kernelwright.kept.startswith("all of 4 kernels")


def test_a_faster_module_is_not_taken_apart(net: Net, arguments: Any) -> None:
    fast, stages = _optimized(net, arguments, [1.3], ["conv2d", "linear"])
    assert fast.kernelwright.kept == "" and "compare" not in stages


def test_a_noisy_wall_clock_is_asked_again(net: Net, arguments: Any) -> None:
    noise = [(1.4, 0.97), (1.4, 0.9), (1.4, 1.1), (1.4, 0.98), (1.3, 1.05)]
    fast, stages = _optimized(net, arguments, noise, [])
    assert fast.kernelwright.set_aside == "" and "compare" not in stages
    fast, _ = _optimized(net, arguments, [(1.4, 0.995)], [])
    assert fast.kernelwright.set_aside == "", "within what the clock resolves"
    known = [(1.4, ratio) for ratio in (0.9, 0.92, 0.91, 0.93, 0.9)]
    with pytest.warns(kw.KernelsUnusedWarning, match="not faster"):
        _, stages = _optimized(net, arguments, known, [])
    assert "compare" in stages, "known to be slower by the wall clock"


# --- What the model is not sure of -------------------------------------------------------------


class Small(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ y, x @ (y + 1)


def test_a_card_decides_what_the_model_is_not_sure_of() -> None:
    graph = capture_in_memory(Small(), (torch.rand(64, 64, 8), torch.rand(64, 8, 64)), {})
    planned = plan_graph(graph, H200)
    reasons = [step.why for step in planned.plan.left_to_pytorch]
    assert len(reasons) == 2 and all("not sure enough" in it for it in reasons)

    def measure(plan: Plan, given: Sequence[Part], graph: Graph) -> Mapping[str, str | None]:
        assert len(given) == 2
        return {given[0].node: None, given[1].node: "measured 1 us, ours 2 us"}

    asked = with_guesses_measured(planned, graph, H200, Library.WHERE_FASTER, measure)
    assert sum(it.family == "gemm" for it in asked.plan.kernels) == 1
    assert [step.why for step in asked.plan.left_to_pytorch] == ["measured 1 us, ours 2 us"]
    nothing = with_guesses_measured(planned, graph, H200, Library.WHERE_FASTER, lambda *it: {})
    assert nothing is planned


@pytest.mark.usefixtures("cache")
def test_a_module_is_planned_once(
    net: Net, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Plan] = []

    def planned(*request: Any) -> Planned:
        found = plan_graph(*request)
        made.append(found.plan)
        return found

    monkeypatch.setattr(making, "plan_graph", planned)
    first, _ = _optimized(net, arguments, [1.3], [])
    again, _ = _optimized(net, arguments, [1.3], [])
    assert len(made) == 1 and again.kernelwright == first.kernelwright
    _optimized(net, tuple(it[:4] for it in arguments), [1.3], [])
    assert len(made) == 2, "other arguments"


@pytest.mark.usefixtures("cache")
def test_a_plan_is_found_as_it_was_kept(captured: Graph) -> None:
    planned = plan_graph(captured, H200)
    chosen = Chosen(plan=planned.plan, choices=planned.choices)
    key = plan_key(captured, H200, Library.WHERE_FASTER, 8.0)
    assert known_plan(key) is None
    keep_plan(key, chosen)
    assert known_plan(key) == chosen
    for library, seconds in ((Library.NEVER, 8.0), (Library.WHERE_FASTER, 60.0)):
        assert known_plan(plan_key(captured, H200, library, seconds)) is None
    for file in cache_root().glob("built/plan/*/*"):
        file.write_bytes(file.read_bytes()[:99])
    assert known_plan(key) is None, "half of a file"
    choices: Any = lambda: None  # noqa: E731
    keep_plan("no record", Chosen(plan=planned.plan, choices=choices))
    assert known_plan("no record") is None


def test_a_module_is_tuned_for_as_long_as_it_is_asked_for(
    net: Net, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def tuned(
        plan: Plan, machine: Machine, effort: Effort, seconds: float, progress: object
    ) -> Plan:
        asked.append(seconds)
        return plan

    monkeypatch.setattr(pipeline, "tuned_plan", tuned)
    monkeypatch.setattr(making, "_device", lambda: torch.device("cpu"))
    quick = OptimizeOptions(target=Target.CUDA, keep=Keep.ALL)
    for options in (
        quick,
        replace(quick, budget_seconds=7.0),
        replace(quick, effort=effort("full")),
        replace(quick, effort=effort("none"), budget_seconds=7.0),
    ):
        optimize_in_memory(net, arguments, None, options, lambda event: None)
    assert asked == [0.0, 7.0, 600.0]


# --- A file ------------------------------------------------------------------------------------

_PROBLEM = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.softmax(x @ y, -1)

def get_inputs():
    return [torch.rand(size) for size in ((4096, 4096), (4096, 4096))]

def get_init_inputs():
    return []
"""


def test_a_file_gives_back_what_is_slower(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(_PROBLEM)
    compiled = compile_problem(load_problem(path), H200)
    assert len(compiled.plan.kernels) == 2, "or else this tests nothing"

    def measure(given: Sequence[Part], captured: Graph) -> Mapping[str, str | None]:
        return decided(given, lambda it: 2e-3, lambda it: 1e-5)

    found, kept = without_slower(compiled, lambda event: None, measure)
    assert [it.family for it in found.plan.kernels] == ["rows"]
    assert kept.startswith("0 of 1") and "given back to PyTorch: matmul measured" in kept
    assert "matmul" in write_candidate(found, tmp_path / "new.py").source
    same, kept = without_slower(compiled, lambda event: None, lambda *it: {})
    assert same is compiled and kept == ""


def test_tuning_a_file_gives_back_but_not_where_nothing_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(_PROBLEM)
    compiled = compile_problem(load_problem(path), H200)
    tuning: list[float] = []

    def tuned(it: Compiled, effort: Effort, seconds: float, progress: object) -> Compiled:
        tuning.append(seconds)
        return it

    def slower(plan: Plan, machine: Machine, device: torch.device) -> MeasureParts:
        return lambda given, captured: {it.node: "measured 1 us, ours 2 us" for it in given}

    monkeypatch.setattr(pipeline, "tuned", tuned)
    monkeypatch.setattr(pipeline, "_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(giving_back, "measure_tuned", slower)
    monkeypatch.setattr(giving_back, "measure_alone", lambda seconds, device: lambda *it: {})
    options = OptimizeOptions(budget_seconds=7.0)
    found, kept = pipeline._mended(compiled, options, lambda event: None)
    assert [it.family for it in found.plan.kernels] == ["rows"] and "0 of 1" in kept
    assert tuning[0] == 7.0 and len(tuning) == 2, "what is new is tuned as well"
    strict = replace(options, rest=kw.Rest.REFUSED)
    same, kept = pipeline._mended(compiled, strict, lambda event: None)
    assert same is compiled and kept == "" and len(tuning) == 3
