"""Whether times are believed, on made-up samples."""

from dataclasses import replace

import numpy as np
import pytest

from kernelwright.bench.outside import Standing, corrected, look_outside
from kernelwright.bench.roofline import Floor
from kernelwright.bench.statistics import median
from kernelwright.bench.timing import Rounds
from kernelwright.bench.trust import Work, examine_times, lost_check
from kernelwright.machine import H200
from kernelwright.verify.verdict import Check, Outcome, Status

NOTHING = Work(written=0, floor=None)
GIGABYTE = 1 << 30


def rounds(span: float, outside: float, seed: int = 0) -> Rounds:
    """Ten batches around these milliseconds, with the jitter of an H200."""
    random = np.random.default_rng(seed)
    made = Rounds(checked=100)
    for _ in range(10):
        spans = span * (1 + 0.02 * random.random(10))
        seen = spans + outside + 0.004 * random.random(10)
        made.add(spans.tolist(), (), seen.tolist(), waited_ms=[0.001] * 10)
    return made


REFERENCE = rounds(0.5, 0.2, seed=1)


def checks_of(
    candidate: Rounds, work: Work = NOTHING, reference: Rounds = REFERENCE
) -> dict[str, Check]:
    outside = look_outside(candidate, reference)
    return {it.name: it for it in examine_times(candidate, reference, outside, work, H200)}


def believed(candidate: Rounds, reference: Rounds = REFERENCE) -> tuple[Standing, float]:
    """How the candidate stands, and the median of the time that counts."""
    outside = look_outside(candidate, reference)
    assert outside is not None
    agrees = outside.standing is Standing.AGREES
    counted = candidate if agrees else corrected(candidate, outside)
    return outside.standing, median(counted.device_ms)


def about(standing: Standing, time: float) -> object:
    """What `believed` gives, but for noise."""
    return standing, pytest.approx(time, rel=0.05)


@pytest.mark.parametrize("span", [0.005, 0.1, 3.0])
def test_honest_times_are_believed(span: float) -> None:
    honest = rounds(span, 0.2)
    assert all(check.outcome is Outcome.PASSED for check in checks_of(honest).values())
    assert believed(honest)[0] is Standing.AGREES


@pytest.mark.parametrize(("says", "takes"), [(0.005, 0.105), (0.01, 1.0), (1.0, 2.0)])
def test_events_that_lie_and_streams_that_are_not_joined(says: float, takes: float) -> None:
    lying = rounds(says, 0.2 + takes - says)
    check = checks_of(lying)["time from outside"]
    assert (check.outcome, check.status) == (Outcome.FAILED, Status.CHEATING)
    assert believed(lying) == about(Standing.HIDDEN, takes)


def test_small_lies_gain_nothing() -> None:
    lying = rounds(0.100, 0.2 + 0.030)
    assert checks_of(lying)["time from outside"].outcome is Outcome.PASSED
    assert believed(lying) == about(Standing.LONGER, 0.13)


def test_who_waits_for_the_device_ends_on_the_host() -> None:
    waiting = rounds(0.02, 0.2 + 0.1)
    assert believed(waiting)[0] is Standing.HIDDEN
    waiting.late = 100
    assert believed(waiting) == about(Standing.AGREES, 0.02)
    reference = rounds(0.5, 0.2 + 0.1, seed=1)
    reference.late = 100
    assert believed(waiting, reference) == about(Standing.AGREES, 0.02)
    slower = rounds(0.02, 0.2 + 0.13)
    slower.late = 100
    assert believed(slower) == about(Standing.LONGER, 0.05)
    lying = rounds(0.02, 0.2 + 0.3)
    lying.late = 100
    assert believed(lying)[0] is believed(lying, reference)[0] is Standing.HIDDEN


def test_lies_in_some_calls_gain_nothing() -> None:
    lying = rounds(0.5, 0.2)
    lying.device_ms = [(0.01,) * 6 + batch[6:] for batch in lying.device_ms]
    assert checks_of(lying)["time from outside"].outcome is Outcome.PASSED
    assert believed(lying) == about(Standing.LONGER, 0.5)


def late(span: float, share: float, seed: int, *, hidden: float = 0.0) -> Rounds:
    """Calls of a busy machine: a share of them is seen late, by milliseconds."""
    random = np.random.default_rng(seed)
    made = rounds(span, 0.2 + hidden, seed)
    waited = np.where(random.random((10, 10)) < share, 0.03 + random.exponential(3.0, (10, 10)), 0)
    made.outside_ms = [tuple(it) for it in np.asarray(made.outside_ms) + waited]
    made.waited_ms = [tuple(it) for it in waited]
    return made


def unaccounted(busy: Rounds) -> Rounds:
    """The same where the kernel does not tell who waited."""
    busy.waited_ms = [(0.0,) * 10] * 10
    return busy


@pytest.mark.parametrize(("span", "share"), [(0.01, 0.6), (0.637, 0.8), (1.83, 0.85), (0.2, 0.97)])
def test_a_busy_machine_accuses_nobody(span: float, share: float) -> None:
    for seed in range(10):
        honest, reference = late(span, share, seed), late(0.5, 0.6, seed + 100)
        standing, time = believed(honest, reference)
        if share < 0.9:
            assert (standing, time) == about(Standing.AGREES, span)
        else:
            assert standing is Standing.UNKNOWN
        check = checks_of(honest, reference=reference)["time from outside"]
        assert check.outcome is not Outcome.FAILED
        standing, time = believed(unaccounted(honest), unaccounted(reference))
        if share < 0.9:
            assert (standing, time) == about(Standing.PARTLY, span)
        else:
            assert standing is Standing.UNKNOWN


def test_work_outside_is_seen_on_a_busy_machine_as_well() -> None:
    for seed in range(10):
        lying, reference = late(0.01, 0.6, seed, hidden=0.5), late(0.5, 0.6, seed + 100)
        assert believed(lying, reference)[0] is Standing.HIDDEN
        # The kernel does not tell, or the candidate makes itself wait: nothing is believed.
        assert believed(unaccounted(lying), unaccounted(reference))[0] in (
            Standing.UNKNOWN,
            Standing.HIDDEN,
        )
        waiting = late(0.01, 1.0, seed, hidden=0.5)
        assert believed(waiting, reference)[0] is Standing.UNKNOWN


def test_nobody_writes_faster_than_the_card() -> None:
    work = Work(written=GIGABYTE, floor=None)
    least = GIGABYTE / H200.write_bandwidth * 1e3
    check = checks_of(rounds(0.5 * least, 0.2), work)["possible speed"]
    assert (check.outcome, check.status) == (Outcome.FAILED, Status.CHEATING)
    check = checks_of(rounds(1.1 * least, 0.2), work)["possible speed"]
    assert check.outcome is Outcome.PASSED


def test_results_that_stay_in_the_cache_need_not_reach_memory() -> None:
    work = Work(written=H200.l2_bytes, floor=None)
    assert checks_of(rounds(0.003, 0.2), work)["possible speed"].outcome is Outcome.PASSED


def test_faster_than_our_own_plan_is_worth_a_word_and_no_verdict() -> None:
    floor = Floor(bytes=GIGABYTE, flops=0, arithmetic="fp32_simt")
    fast = rounds(0.5 * floor.milliseconds(H200), 0.2)
    check = checks_of(fast, Work(written=0, floor=floor))["possible speed"]
    assert check.outcome is Outcome.WARNING
    less = replace(floor, algebraic=True)
    check = checks_of(fast, Work(written=0, floor=less))["possible speed"]
    assert check.outcome is Outcome.PASSED


def test_results_that_are_wrong_only_when_timed() -> None:
    wrong = rounds(0.5, 0.2)
    wrong.wrong.append("own inputs of seed 3: output is off")
    assert checks_of(wrong)["timed results"].status is Status.NOT_DETERMINISTIC
    wrong.wrong.append("own inputs of seed 4: output is off")
    check = checks_of(wrong)["timed results"]
    assert (check.outcome, check.status) == (Outcome.FAILED, Status.CHEATING)
    assert "2 of 100" in check.evidence


def test_what_else_is_seen() -> None:
    greedy = rounds(0.5, 0.2)
    greedy.persisting_l2 = 30 << 20
    usual = rounds(0.5, 0.2)
    usual.persisting_l2 = 30 << 20
    names = [it.name for it in examine_times(greedy, usual, None, NOTHING, H200)]
    assert "L2 cache" not in names
    check = checks_of(greedy)["L2 cache"]
    assert (check.outcome, check.status) == (Outcome.FAILED, Status.CHEATING)
    waiting = rounds(0.5, 0.2)
    waiting.late = 100
    assert checks_of(waiting)["launches"].outcome is Outcome.WARNING
    lost = Rounds(lost="SIGSEGV during 'call'")
    assert checks_of(lost)["timed calls"].status is Status.CRASHED
    assert lost_check("why", Status.TIMED_OUT).outcome is Outcome.FAILED
