"""The race between a candidate and its baselines."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.bench.outside import Outside, Standing
from kernelwright.bench.roofline import Floor
from kernelwright.bench.timing import (
    FULL_TIMING,
    ContestantLostError,
    Rounds,
    Samples,
    TimingPlan,
)
from kernelwright.bench.trust import lost_check
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.bounds import Expected
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.verify.verdict import Check, Outcome, Status
from kernelwright.verify.verification import Event
from kernelwright.worker import Baseline, JudgeOptions, Timeouts, judge
from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.judging.contest import _attach
from kernelwright.worker.judging.racing import Race
from kernelwright.worker.judging.shared_race import Runner, SharedRace
from kernelwright.worker.judging.timed_inputs import TimerInputs
from kernelwright.worker.options import Haste, Sanitizers, Speed
from kernelwright.worker.process.requests import Role
from kernelwright.worker.roles.clock import Timer
from kernelwright.worker.roles.subject import Subject
from kernelwright.worker.timer.records import CallReply, CallRequest, Lent
from kernelwright.worker.timer.stream_copies import StreamCopies
from kernelwright.worker.timer.timed_calls import SharedCalls

CANDIDATES = Path(__file__).parent / "candidates"
FLOOR = Floor(bytes=64 << 20, flops=1 << 20, arithmetic="fp32_simt")
QUICK = TimingPlan(warm_up_seconds=0.0, batch=4, samples=8)


class HostClock:
    """Stands in for the stopwatch, which needs a device."""

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cpu"

    def warm_up(self, call: Callable[[int], object], seconds: float) -> None:
        call(0)

    def sample(self, call: Callable[[int], object], count: int) -> Samples:
        spans = []
        for turn in range(count):
            start = time.perf_counter()
            call(turn)
            spans.append((time.perf_counter() - start) * 1e3)
        return Samples(device_ms=tuple(spans), host_ms=tuple(spans[:1]))


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.worker.roles.timed.Stopwatch", HostClock)


RaceHere = Callable[..., Race]
ONE = JudgeOptions(timing=QUICK, baselines=(Baseline.EAGER,))


def check_of(race: Race, name: str) -> Check:
    return next(check for check in race.checks if check.name == name)


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_a_race_measures_everybody(race_here: RaceHere, affine: Problem) -> None:
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    measurement = race.measurement
    assert measurement.note == ""
    assert measurement.candidate is not None
    assert measurement.candidate.samples == 8
    assert [series.name for series in measurement.baselines] == ["eager"]
    assert measurement.best_baseline == "eager"
    speedup = measurement.speedup_over("eager")
    assert speedup is not None
    assert speedup.device.low <= speedup.device.value <= speedup.device.high
    assert measurement.copy_bandwidth is not None
    assert measurement.share_of_copy is not None
    assert measurement.environment is not None
    assert measurement.environment.torch == torch.__version__
    assert check_of(race, "timer").outcome is Outcome.PASSED
    results = check_of(race, "timed results")
    assert results.outcome is Outcome.PASSED
    # Two batches of four samples, one for the host and one on zero-mean inputs in each, and what
    # lay on the stream after those that were taken for the device.
    assert "all 22 compared" in results.evidence


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_the_candidate_warms_up_last(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    begin, refill = SharedRace.begin_attaching, TimerInputs.refill

    def begun(race: SharedRace, runner: Runner, seconds: float) -> None:
        log.append(f"{runner.words.stem} after {', '.join(race.runners) or 'nobody'}")
        begin(race, runner, seconds)

    monkeypatch.setattr(SharedRace, "begin_attaching", begun)
    monkeypatch.setattr(TimerInputs, "refill", lambda it: log.append("refill") or refill(it))
    race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert log == ["reference after nobody", "refill", "candidate after eager"]


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_memory_that_is_kept_for_later_is_there_for_the_timer(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Subject] = []
    lend = Timer.lend

    def lend_what_is_free(timer: Timer, body: dict[str, Any]) -> Lent:
        if not given:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 16.00 GiB.")
        return lend(timer, body)

    monkeypatch.setattr(Timer, "lend", lend_what_is_free)
    monkeypatch.setattr(Subject, "give_back", lambda subject: given.append(subject))
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert check_of(race, "timer").outcome is Outcome.PASSED
    assert len(given) == 2  # reference and candidate


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_others_have_the_card_while_times_are_summed_up(
    race_here: RaceHere,
    affine: Problem,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("locks")))
    examined: list[bool] = []

    def examine(*_: object) -> tuple[Check, ...]:
        with open_lease(0) as other:
            other.claim(lambda: pytest.fail("the card is still taken"))
        examined.append(True)
        return ()

    monkeypatch.setattr("kernelwright.worker.judging.racing.examine_times", examine)
    race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert examined == [True]


@pytest.mark.parametrize("name", ["hangs_later", "hangs_at_once"])
@pytest.mark.parametrize("memory", ["shared_memory", "host_clock"])
def test_a_candidate_that_hangs_where_it_is_timed_is_ended_as_soon_as_where_it_is_verified(
    race_here: RaceHere,
    affine: Problem,
    name: str,
    memory: str,
    request: pytest.FixtureRequest,
    host_clock: None,
) -> None:
    request.getfixturevalue(memory)
    options = replace(ONE, timeouts=Timeouts(hang=0.3))
    start = time.monotonic()
    try:
        race = race_here(affine, CANDIDATES / f"{name}.py", FLOOR, options)
        (check,) = (it for it in race.checks if it.status is Status.TIMED_OUT)
    except ContestantLostError as error:
        check = lost_check(str(error), error.status)
    assert check.status is Status.TIMED_OUT
    assert "no answer in 0.3" in check.evidence
    assert time.monotonic() - start < 15  # when it would still sleep


@pytest.mark.usefixtures("host_clock", "shared_memory")
@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("stops_working", Status.CHEATING, "wrong when it was timed"),
        ("wrong_for_zero_mean", Status.CHEATING, "normal inputs"),
        ("crashes_later", Status.CRASHED, "too tired"),
    ],
)
def test_a_candidate_that_works_only_while_it_is_verified(
    race_here: RaceHere, affine: Problem, name: str, status: Status, says: str
) -> None:
    race = race_here(affine, CANDIDATES / f"{name}.py", FLOOR, ONE)
    failed = [
        check
        for check in race.checks
        if check.outcome is Outcome.FAILED and check.name.startswith("timed")
    ]
    assert [check.status for check in failed] == [status]
    assert says in failed[0].evidence


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_a_bound_that_is_too_large_condemns_nobody(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = Expected.bound
    asked = 0

    def too_large(expected: Expected, found: torch.Tensor) -> ErrorMetrics | None:
        nonlocal asked
        asked += 1
        metrics = bounded(expected, found)
        return None if metrics is None else replace(metrics, candidate_worst=1.0)

    monkeypatch.setattr(Expected, "bound", too_large)
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert check_of(race, "timed results").outcome is Outcome.PASSED
    # The results of the candidate and of the reference, and those of the rehearsal.
    assert asked == 2 * 22 + 1


@pytest.mark.usefixtures("host_clock", "shared_memory")
@pytest.mark.parametrize("late", [False, True])
def test_parts_of_large_results_have_to_be_there_when_the_call_ends(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    monkeypatch.setattr("kernelwright.worker.timer.stream_copies._LARGEST", 64)
    monkeypatch.setattr("kernelwright.worker.timer.stream_copies._PART", 512)
    take = StreamCopies.take

    def take_early(copies: StreamCopies, results: Sequence[tuple[str, torch.Tensor]]) -> None:
        kept = [tensor.clone() for _, tensor in results]
        for _, tensor in results:
            tensor.mul_(1.5)
        take(copies, results)
        for (_, tensor), right in zip(results, kept, strict=True):
            tensor.copy_(right)

    if late:
        monkeypatch.setattr(StreamCopies, "take", take_early)
    results = check_of(race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE), "timed results")
    if late:
        assert results.status is Status.CHEATING
        assert "output was not there yet" in results.evidence
    else:
        assert results.outcome is Outcome.PASSED
        assert "all 22 compared" in results.evidence


@pytest.mark.usefixtures("host_clock", "shared_memory")
@pytest.mark.parametrize("busy", [1, 3])
def test_a_busy_machine_is_timed_again_and_condemns_nobody(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    looks: list[int] = []

    def look(candidate: Rounds, reference: Rounds) -> Outside:
        assert len(candidate.waited_ms) == len(reference.waited_ms) == len(candidate.device_ms)
        looks.append(sum(map(len, candidate.waited_ms)))
        standing = Standing.AGREES if looks[-1] > 8 * busy else Standing.UNKNOWN
        return Outside(
            standing=standing, usual=0.2, beyond=1.0, certain=0.0, on_time=3, calls=looks[-1]
        )

    monkeypatch.setattr("kernelwright.worker.judging.racing.look_outside", look)
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert max(looks) == 8 * min(busy + 1, 3)
    check = check_of(race, "time from outside")
    if busy < 3:
        assert check.outcome is Outcome.PASSED
        assert race.measurement.candidate is not None
    else:
        assert check.outcome is Outcome.WARNING
        assert "in 3 of 24 calls nobody waited for a core" in check.evidence
        assert race.measurement.candidate is None
        assert race.measurement.note.startswith("not measured: the machine is too busy")


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_a_call_that_shows_no_results_is_wrong(
    race_here: RaceHere, affine: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedCalls.call

    def hidden(calls: SharedCalls, request: CallRequest) -> CallReply:
        return replace(shared(calls, request), tensors=(), snapshot=(), parts=())

    monkeypatch.setattr(SharedCalls, "call", hidden)
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert "another form" in check_of(race, "timed results").evidence


@pytest.mark.usefixtures("host_clock", "shared_memory")
def test_a_candidate_that_cannot_be_prepared_stops_the_race(
    race_here: RaceHere, affine: Problem
) -> None:
    with pytest.raises(ContestantLostError, match="no kernel for this"):
        race_here(affine, CANDIDATES / "raises.py", FLOOR, ONE)


@pytest.mark.usefixtures("host_clock")
def test_without_shared_memory_everybody_keeps_time_alone_and_that_is_said(
    race_here: RaceHere, affine: Problem
) -> None:
    race = race_here(affine, CANDIDATES / "correct.py", FLOOR, ONE)
    assert race.measurement.candidate is not None
    assert race.measurement.candidate.samples == 8
    timer = check_of(race, "timer")
    assert timer.outcome is Outcome.WARNING
    assert "took its own time" in timer.evidence


@pytest.mark.gpu
@pytest.mark.parametrize("baselines", [(Baseline.EAGER, Baseline.COMPILED)])
def test_a_judgement_on_the_gpu(affine: Problem, baselines: tuple[Baseline, ...]) -> None:
    events: list[Event] = []
    verdict, measurement = judge(
        affine,
        CANDIDATES / "correct.py",
        target=Target.CUDA,
        floor=FLOOR,
        options=JudgeOptions(baselines=baselines, haste=Haste.AT_ONCE),
        progress=events.append,
    )
    assert verdict.status in (Status.VERIFIED_FASTER, Status.VERIFIED_NOT_FASTER), verdict.summary
    assert verdict.status.exit_code in (0, 2)
    assert measurement.candidate is not None
    assert 0.001 < measurement.candidate.device_ms < 10
    assert measurement.candidate.samples >= FULL_TIMING.precise_samples
    assert {series.name for series in measurement.baselines} == {it.value for it in baselines}
    assert measurement.copy_bandwidth is not None
    assert measurement.copy_bandwidth > 1e11
    assert measurement.environment is not None
    assert measurement.environment.driver
    assert {event.stage for event in events} == {"build", "verify", "time"}


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("half_precision", Status.WRONG_VALUES),
        ("aliases_input", Status.INPUT_CHANGED),
        ("aborts", Status.CRASHED),
    ],
)
def test_wrong_candidates_on_the_gpu(affine: Problem, name: str, status: Status) -> None:
    verdict, measurement = judge(
        affine,
        CANDIDATES / f"{name}.py",
        target=Target.CUDA,
        floor=None,
        options=JudgeOptions(seeds=1, speed=Speed.SKIPPED, sanitizers=Sanitizers.OFF),
        progress=lambda event: None,
    )
    assert verdict.status is status
    assert measurement.candidate is None
    assert measurement.note.startswith("not measured")


@pytest.mark.gpu
def test_the_same_code_is_not_faster_and_two_runs_agree(affine: Problem, tmp_path: Path) -> None:
    same = tmp_path / "same.py"
    same.write_text(affine.source.replace("class Model(", "class ModelNew("))
    intervals = []
    for _ in range(2):
        verdict, measurement = judge(
            affine,
            same,
            target=Target.CUDA,
            floor=None,
            options=JudgeOptions(seeds=1, baselines=(Baseline.EAGER,), haste=Haste.AT_ONCE),
            progress=lambda event: None,
        )
        assert verdict.status is Status.VERIFIED_NOT_FASTER, measurement.to_json()
        speedup = measurement.speedup_over("eager")
        assert speedup is not None
        intervals.append(speedup.device)
    first, second = intervals
    assert first.low <= second.high
    assert second.low <= first.high
    timer = next(check for check in verdict.checks if check.name == "timer")
    assert timer.outcome is Outcome.PASSED, timer.evidence
    isolation = next(check for check in verdict.checks if check.name == "isolation")
    assert isolation.outcome is Outcome.PASSED, isolation.evidence


@pytest.mark.parametrize("busy", [False, True])
def test_who_shares_the_card_by_himself_is_not_waited_for_with_our_share(busy: bool) -> None:
    log: list[str] = []

    @contextmanager
    def shared() -> Iterator[None]:
        log.append("share")
        yield
        log.append("let go")

    def child_of(role: Role) -> Any:
        return SimpleNamespace(role=role, is_busy=lambda: busy)

    contest: Any = SimpleNamespace(
        session=SimpleNamespace(words=lambda role: Path(role.name), ledger=Ledger()),
        options=ONE,
        lease=SimpleNamespace(shared=shared),
        tell=lambda *_: None,
        child_of=child_of,
        patient_with=lambda role: lambda calls, besides: None,
        seconds_to_prepare=lambda role: 1.0,
    )
    race: Any = SimpleNamespace(
        begin_attaching=lambda runner, _: log.append(f"begin {runner.words}"),
        attach=lambda name, *_: log.append(f"end {name}"),
    )
    lost: dict[str, ContestantLostError] = {}
    _attach(contest, race, {"eager": Role.REFERENCE, "compiled": Role.COMPILED}, lost)
    ours = ["share", "begin REFERENCE", "end eager", "let go"]
    theirs = ["begin COMPILED"]
    first, then = (ours, theirs) if busy else (theirs, ours)
    assert log == [*first, *then, "end compiled"]
    assert not lost
