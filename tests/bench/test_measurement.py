"""Statistics, interleaving and what a measurement says; the clock itself needs a GPU."""

import json
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from kernelwright.bench.measurement import (
    Environment,
    Measurement,
    not_measured,
    summarise,
)
from kernelwright.bench.roofline import Floor
from kernelwright.bench.statistics import median, median_interval, ratio_of_medians
from kernelwright.bench.timing import (
    FULL_TIMING,
    QUICK_TIMING,
    ContestantLostError,
    Rounds,
    Samples,
    TimingPlan,
    interleave,
)
from kernelwright.machine import H200

FLOOR = Floor(bytes=536_870_912, flops=67_108_864, arithmetic="fp32_simt")
ENVIRONMENT = Environment(card="H200", torch="2.11", cuda="13.0", driver="580", date="2026")


def noisy(base: float, seed: int, drift: Callable[[int], float] = lambda _: 1.0) -> Rounds:
    random = np.random.default_rng(seed)
    rounds = Rounds()
    for number in range(10):
        samples = base * drift(number) * (1 + 0.02 * random.random(10))
        rounds.device_ms.append(tuple(samples))
        rounds.host_ms.append(tuple(samples[:2] + 0.01))
    return rounds


def test_the_interval_holds_the_ratio_and_is_repeatable() -> None:
    slow, fast = noisy(2.0, 1).device_ms, noisy(1.0, 2).device_ms
    interval = ratio_of_medians(slow, fast)
    assert interval == ratio_of_medians(slow, fast)
    assert interval.low <= interval.value <= interval.high
    assert interval.low < 2.0 < interval.high or abs(interval.value - 2.0) < 0.02
    assert interval.high - interval.low < 0.05


def test_a_drifting_clock_is_not_taken_for_noise_of_the_ratio() -> None:
    def drift(number: int) -> float:
        return 1 + 0.05 * number

    interval = ratio_of_medians(noisy(2.0, 1, drift).device_ms, noisy(1.0, 2, drift).device_ms)
    assert 1.9 < interval.low < interval.high < 2.1


def test_equal_contestants_are_not_told_apart() -> None:
    interval = ratio_of_medians(noisy(1.0, 1).device_ms, noisy(1.0, 2).device_ms)
    assert interval.low < 1.0 < interval.high


def test_rounds_may_be_of_unequal_length() -> None:
    random = np.random.default_rng(7)
    top = (2 + 0.02 * random.standard_normal((12, 10))).tolist()
    bottom = [(1 + 0.02 * random.standard_normal(n)).tolist() for n in (1, 0, 3, 10, 2, 4) * 2]
    interval = ratio_of_medians(top, bottom)
    assert interval.low < 2 < interval.high
    assert interval.value == pytest.approx(2, rel=0.02)
    # Fewer samples are known less well.
    full = (1 + 0.02 * random.standard_normal((12, 10))).tolist()
    narrow = ratio_of_medians(top, full)
    assert narrow.high - narrow.low < interval.high - interval.low


def test_rounds_have_to_match() -> None:
    with pytest.raises(ValueError, match="2 rounds against 1"):
        ratio_of_medians([(1.0,), (1.0,)], [(1.0,)])


def test_the_median_is_over_all_rounds() -> None:
    assert median([(1.0, 2.0), (3.0,), (100.0, 4.0)]) == 3.0


class Recorder:
    """A contestant that writes down when it was asked; fails at its `fails_at`-th batch."""

    def __init__(self, name: str, turns: list[str], fails_at: int = -1) -> None:
        self.name, self.turns, self.left = name, turns, fails_at

    def take(self, count: int) -> Samples:
        self.turns.append(self.name)
        self.left -= 1
        if self.left == 0:
            raise ContestantLostError("illegal address")
        return Samples(device_ms=(1.0,) * count, host_ms=(1.0,))


def test_contestants_take_turns_and_a_lost_one_falls_out() -> None:
    turns: list[str] = []
    contestants = {
        "candidate": Recorder("candidate", turns),
        "eager": Recorder("eager", turns),
        "compiled": Recorder("compiled", turns, fails_at=2),
    }
    seen: list[int] = []
    rounds = interleave(contestants, TimingPlan(batch=10, samples=30, seconds=60), seen.append)
    assert turns == [
        *("candidate", "eager", "compiled"),
        *("candidate", "eager", "compiled"),
        *("candidate", "eager"),
    ]
    assert seen == [10, 20, 30]
    assert rounds["compiled"].lost == "illegal address"
    assert rounds["compiled"].device_ms == []
    assert sum(map(len, rounds["candidate"].device_ms)) == 30


def test_time_can_end_the_race_before_the_samples_do() -> None:
    contestants = {"candidate": Recorder("candidate", [])}
    plan = TimingPlan(batch=5, samples=10**6, seconds=0.0, most_samples=10**6)
    rounds = interleave(contestants, plan, lambda taken: None)
    assert sum(map(len, rounds["candidate"].device_ms)) == 10


def test_a_clear_time_is_not_taken_longer_than_it_needs_to_be() -> None:
    plan = QUICK_TIMING
    clear, noise = [(1.0, 1.004, 0.998, 1.001)] * 5, [(1.0, 1.3, 0.8, 1.1)] * 5
    assert plan.enough(20, 0.1, [clear, clear])
    assert not plan.enough(20, 0.1, [clear, noise])
    assert not plan.enough(16, 0.1, [clear[:4], clear[:4]])
    assert plan.enough(20, plan.most_seconds, [clear, noise])
    assert not plan.enough(16, 9 * plan.most_seconds, [clear[:4]])
    assert plan.enough(plan.samples, 0.1, [noise])
    assert not TimingPlan().enough(20, 0.1, [clear, clear])
    still = [(1.0, 1.002, 0.999, 1.001)] * 20
    assert FULL_TIMING.enough(60, 0.1, [still, still])
    assert not FULL_TIMING.enough(50, 0.1, [still, still])
    assert not FULL_TIMING.enough(60, 0.1, [still, noise * 4])
    # A tenth of a microsecond more or less is nothing to what processes are apart.
    assert FULL_TIMING.enough(60, 0.1, [[(0.0190, 0.0191, 0.0189, 0.0190)] * 20])
    assert not FULL_TIMING.enough(60, 0.1, [[(0.0183, 0.0190, 0.0194, 0.0197)] * 20])


def test_the_interval_of_a_median_holds_it_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    intervals = [median_interval([random.lognormal(0.0, 0.5, size=25)]) for _ in range(400)]
    held = sum(it.low <= 1.0 <= it.high for it in intervals)
    assert 0.93 * 400 <= held <= 0.995 * 400


def measured(candidate: float, **baselines: float) -> Measurement:
    rounds = {"candidate": noisy(candidate, 0)}
    rounds |= {name: noisy(base, seed) for seed, (name, base) in enumerate(baselines.items(), 1)}
    return summarise(
        rounds,
        candidate="candidate",
        lost={"torch.compile": "no Triton"},
        floor=FLOOR,
        machine=H200,
        copy_bandwidth=4.0e12,
        environment=ENVIRONMENT,
    )


def compared(**rounds: Rounds) -> Measurement:
    return summarise(
        rounds,
        candidate="candidate",
        lost={},
        floor=None,
        machine=H200,
        copy_bandwidth=None,
        environment=ENVIRONMENT,
    )


def test_the_best_baseline_decides() -> None:
    measurement = measured(1.0, eager=3.0, compiled=1.5)
    assert measurement.best_baseline == "compiled"
    assert measurement.faster
    eager = measurement.speedup_over("eager")
    assert eager is not None
    assert eager.device.value == pytest.approx(3.0, rel=0.02)
    assert measurement.lost == {"torch.compile": "no Triton"}
    assert not measured(1.0, eager=3.0, compiled=0.9).faster
    assert not measured(1.0, eager=1.0).faster


def test_faster_on_its_own_inputs_alone_is_not_faster() -> None:
    def on_other_inputs(candidate: float) -> Measurement:
        own, eager = noisy(1.0, 0), noisy(2.0, 1)
        own.other_ms = noisy(candidate, 2).device_ms
        eager.other_ms = noisy(2.0, 3).device_ms
        return compared(candidate=own, eager=eager)

    assert on_other_inputs(1.0).faster
    assert on_other_inputs(2.0).faster
    assert not on_other_inputs(2.2).faster


def test_less_than_the_resolution_is_not_faster() -> None:
    assert not measured(1.0, eager=1.004).faster
    assert measured(1.0, eager=1.05).faster
    assert measured(0.002, eager=0.006).faster


SAME = (0.01936, 0.01874, 0.01946, 0.01878, 0.01930, 0.01936, 0.01933, 0.01931, 0.01875)
"""Medians of nine processes that ran the same three kernels on an H200, milliseconds."""


def still(milliseconds: float) -> Rounds:
    """Samples that do not scatter: what is left is what no number of them shows."""
    rounds = Rounds()
    for _ in range(10):
        rounds.add((milliseconds,) * 10, (milliseconds,) * 2)
    return rounds


def is_faster(candidate: float, eager: float) -> bool:
    return compared(candidate=still(candidate), eager=still(eager)).faster


def test_processes_that_run_the_same_code_are_not_told_apart() -> None:
    assert not any(is_faster(own, other) for own, other in permutations(SAME, 2))
    # One pair in a thousand is 3.09 standard deviations of a difference apart, or more.
    apart = 3.09 * 2**0.5 * np.std(SAME, ddof=1)
    for milliseconds in (0.005, 0.019, 0.1):
        assert not is_faster(milliseconds, milliseconds + apart)
        assert is_faster(milliseconds, 1.2 * milliseconds + 2 * apart)


def test_what_processes_are_apart_by_is_nothing_to_a_long_call() -> None:
    for milliseconds, most in ((0.2, 0.015), (2.0, 0.0015)):
        (speedup,) = compared(candidate=still(milliseconds), eager=still(milliseconds)).speedups
        assert most / 2 < speedup.device.high / speedup.device.low - 1.0 < most
    assert is_faster(0.2, 0.205)


def test_a_card_that_others_use_in_between_makes_nobody_faster() -> None:
    """They make calls slower and none quicker: the quickest tenth of both is left alone."""

    def between(share: float, seed: int, quick: float = 1.0) -> Rounds:
        rounds = noisy(quick, seed)
        hit = np.random.default_rng(seed + 10)
        rounds.device_ms = [
            tuple(it + 0.5 * (hit.random() < share) for it in batch) for batch in rounds.device_ms
        ]
        return rounds

    disturbed = compared(candidate=between(0.3, 0), eager=between(0.7, 1))
    assert disturbed.speedups[0].device.low > 1.2
    assert disturbed.speedups[0].undisturbed == pytest.approx(1.0, abs=0.02)
    assert not disturbed.faster
    slower = between(0.7, 1, quick=1.1)
    assert compared(candidate=between(0.3, 0), eager=slower).faster


def test_shares_of_the_ceilings() -> None:
    measurement = measured(0.14, eager=0.15)
    assert measurement.candidate is not None
    milliseconds = measurement.candidate.device_ms
    assert measurement.floor_ms == pytest.approx(536_870_912 / 4.28e12 * 1e3)
    assert measurement.share_of_floor == pytest.approx(measurement.floor_ms / milliseconds)
    assert measurement.share_of_copy == pytest.approx(536_870_912 / (milliseconds * 1e-3) / 4.0e12)


def test_a_floor_of_arithmetic() -> None:
    floor = Floor(bytes=1 << 20, flops=137_438_953_472, arithmetic="tf32")
    assert floor.milliseconds(H200) == pytest.approx(137_438_953_472 / 405e12 * 1e3)


def test_a_candidate_that_fell_out_is_not_measured() -> None:
    lost = Rounds(lost="illegal address")
    measurement = compared(**{"candidate": lost, "eager": noisy(1.0, 1)})
    assert measurement.note == "not measured: illegal address"
    assert not measurement.faster


def test_a_baseline_that_was_wrong_does_not_count_and_says_so() -> None:
    wrong = Rounds(lost="2.64e-04 away", wrong=["2.64e-04 away"])
    measurement = compared(
        **{"candidate": noisy(1.0, 0), "eager": noisy(1.0, 1), "torch.compile": wrong}
    )
    (reason,) = measurement.lost.values()
    assert "less accurate than allowed" in reason and reason.endswith("2.64e-04 away")
    assert [speedup.baseline for speedup in measurement.speedups] == ["eager"]


def test_measurements_as_json() -> None:
    for measurement in (measured(1.0, eager=3.0), not_measured("not measured: no GPU", None, H200)):
        text = json.loads(json.dumps(measurement.to_json(), allow_nan=False))
        assert text["note"] == measurement.note
        assert text["faster"] is measurement.faster
