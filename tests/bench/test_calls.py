"""Times of calls in this process, by a stopwatch that makes them up."""

from collections.abc import Callable

import pytest
import torch

from kernelwright.bench import calls
from kernelwright.bench.measurement import Environment, Measurement
from kernelwright.bench.timing import Samples, TimingPlan
from kernelwright.machine import H200

_PLAN = TimingPlan(batch=4, samples=20, seconds=0.0, warm_up_seconds=0.0)
_HERE = Environment(card="none", torch="", cuda="", driver="", date="")


class MadeUp:
    """A call says itself how long it takes: its result, in milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def warm_up(self, call: Callable[[int], object], seconds: float) -> None:
        call(0)

    def sample(self, call: Callable[[int], object], count: int) -> Samples:
        times = tuple(float(call(turn)) for turn in range(count))  # type: ignore[arg-type]
        return Samples(device_ms=times, host_ms=times[:1])


def run(
    monkeypatch: pytest.MonkeyPatch, contestants: dict[str, Callable[[int], object]]
) -> Measurement:
    monkeypatch.setattr(calls, "Stopwatch", MadeUp)
    return calls.time_calls(
        contestants,
        candidate="candidate",
        device=torch.device("cpu"),
        plan=_PLAN,
        machine=H200,
        environment=_HERE,
        on_round=lambda taken: None,
    )


def test_who_takes_half_the_time_is_twice_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def candidate(turn: int) -> float:
        assert not torch.is_grad_enabled()
        turns.append(turn)
        return 1.0

    measured = run(monkeypatch, {"candidate": candidate, "eager": lambda turn: 2.0})
    assert measured.faster
    speedup = measured.speedup_over("eager")
    assert speedup is not None
    assert speedup.device.value == 2.0
    assert measured.floor is None
    assert set(turns) == {0, 1, 2, 3}  # so that inputs rotate


def test_a_baseline_that_raises_is_lost_and_a_candidate_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(turn: int) -> object:
        raise RuntimeError("no such kernel")

    measured = run(monkeypatch, {"candidate": lambda turn: 1.0, "torch.compile": fail})
    assert measured.lost == {"torch.compile": "RuntimeError: no such kernel"}
    assert measured.speedups == ()
    with pytest.raises(RuntimeError, match="no such kernel"):
        run(monkeypatch, {"candidate": fail, "eager": lambda turn: 1.0})
