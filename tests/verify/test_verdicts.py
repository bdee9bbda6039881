"""From observations to a verdict."""

import json
from dataclasses import replace

import pytest

from kernelwright.errors import ExitCode
from kernelwright.verify.cases import Case, Demand, Demands, PlannedCase
from kernelwright.verify.checks import examine
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.observation import (
    LATER_RESULT,
    REPLACED,
    Fault,
    FaultKind,
    FindingKind,
    KernelFinding,
    Observation,
    Refusal,
)
from kernelwright.verify.tolerance import NO_LESS_ACCURATE
from kernelwright.verify.verdict import Outcome, Status
from kernelwright.verify.verification import Brief, BuildFacts, Event, verify

from .observed import GOOD, METRICS, RUN, WRONG, facts

UNWRITTEN = replace(METRICS, mismatches=7, mismatch_index=(0, 0))


def finding(kind: FindingKind) -> KernelFinding:
    return KernelFinding(kind=kind, message="matmul at k/cuda.cu:31, block (0, 0, 0)")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, Status.VERIFIED),
        ({"comparisons": (WRONG,)}, Status.WRONG_VALUES),
        ({"repeats": (WRONG,)}, Status.NOT_DETERMINISTIC),
        ({"repeats": (METRICS,)}, Status.VERIFIED),
        # What nothing wrote is not what changes from run to run, but what lay there.
        ({"comparisons": (UNWRITTEN,), "repeats": (UNWRITTEN,)}, Status.WRONG_VALUES),
        ({"comparisons": (UNWRITTEN,), "repeats": (WRONG,)}, Status.NOT_DETERMINISTIC),
        ({"candidate": replace(RUN, changed=("input[0]",))}, Status.INPUT_CHANGED),
        ({"candidate": replace(RUN, changed=("state.mean",))}, Status.SIDE_EFFECT),
        ({"reference": replace(RUN, changed=("state.mean",))}, Status.STATE_NOT_UPDATED),
        # What a rounding left in the reference alone may change by one.
        (
            {
                "candidate": replace(RUN, changed=("state.mean",)),
                "comparisons": (METRICS, replace(METRICS, name="state.mean")),
            },
            Status.VERIFIED,
        ),
        (
            {
                "candidate": replace(RUN, changed=("state.mean",)),
                "comparisons": (METRICS, replace(WRONG, name="state.mean")),
            },
            Status.SIDE_EFFECT,
        ),
        # What the reference changed by a rounding may stay; what it changed visibly may not.
        (
            {
                "reference": replace(RUN, changed=("state.mean",)),
                "comparisons": (METRICS, replace(METRICS, name="state.mean")),
            },
            Status.VERIFIED,
        ),
        (
            {
                "reference": replace(RUN, changed=("state.mean",)),
                "comparisons": (METRICS, replace(WRONG, name="state.mean")),
            },
            Status.STATE_NOT_UPDATED,
        ),
        ({"candidate": replace(RUN, aliases=(("output", "input[0]"),))}, Status.RESULT_SHARED),
        (
            {"candidate": replace(RUN, aliases=(("output", LATER_RESULT), ("output", "state.w")))},
            Status.RESULT_OVERWRITTEN,
        ),
        ({"candidate": replace(RUN, structure="(T)")}, Status.WRONG_SHAPE_OR_DTYPE),
        ({"candidate": replace(RUN, inputs=(facts("input[0]", "b"),))}, Status.UNSUPPORTED),
        ({"candidate": replace(RUN, replayed=("output",))}, Status.VERIFIED),
        (
            {
                "candidate": replace(RUN, replayed=("output",)),
                "comparisons": (WRONG,),
                "repeats": (METRICS,),
            },
            Status.CHEATING,
        ),
        (
            {"candidate": replace(RUN, replayed=("output",)), "repeats": (WRONG,)},
            Status.CHEATING,
        ),
        # Something else is wrong: it happens that the result does not depend on these inputs.
        (
            {
                "candidate": replace(RUN, replayed=("output",)),
                "comparisons": (METRICS, replace(WRONG, name="state.running_mean")),
            },
            Status.WRONG_VALUES,
        ),
        ({"comparisons": ()}, Status.WRONG_VALUES),
        (
            {"candidate": replace(RUN, outputs=(replace(facts("output"), kind="Lazy"),))},
            Status.CHEATING,
        ),
        (
            {"candidate": replace(RUN, outputs=(replace(facts("output"), stored=False),))},
            Status.CHEATING,
        ),
        ({"candidate": replace(RUN, settings=(("time.time", REPLACED),))}, Status.CHEATING),
        ({"candidate": replace(RUN, settings=(("default dtype", "a -> b"),))}, Status.SIDE_EFFECT),
        ({"candidate": replace(RUN, settings=(("cudnn.benchmark", "a -> b"),))}, Status.VERIFIED),
        ({"candidate": replace(RUN, random="1f")}, Status.SIDE_EFFECT),
        ({"candidate": Fault(kind=FaultKind.REFUSED, message="E")}, Status.CRASHED),
        ({"candidate": Fault(kind=FaultKind.CRASH, message="E")}, Status.CRASHED),
        ({"candidate": Fault(kind=FaultKind.HANG, message="E")}, Status.TIMED_OUT),
        ({"candidate": Fault(kind=FaultKind.BAD_ACCESS, message="E")}, Status.MEMORY_ERROR),
        ({"candidate": Fault(kind=FaultKind.OUT_OF_MEMORY, message="E")}, Status.OUT_OF_MEMORY),
        ({"findings": (finding(FindingKind.RACE),)}, Status.RACE),
        ({"findings": (finding(FindingKind.BARRIER_DIVERGENCE),)}, Status.RACE),
        ({"findings": (finding(FindingKind.OUT_OF_BOUNDS),)}, Status.OUT_OF_BOUNDS),
        ({"findings": (finding(FindingKind.MISALIGNED),)}, Status.MEMORY_ERROR),
        ({"findings": (finding(FindingKind.UNINITIALISED_READ),)}, Status.MEMORY_ERROR),
        ({"findings": (finding(FindingKind.UNSUPPORTED),)}, Status.UNSUPPORTED),
        (
            {"findings": (finding(FindingKind.RACE),), "comparisons": (WRONG,)},
            Status.RACE,
        ),
        (
            {
                "findings": (finding(FindingKind.OUT_OF_BOUNDS),),
                "candidate": Fault(kind=FaultKind.REFUSED, message="EmulatorFault"),
                "comparisons": (),
            },
            Status.OUT_OF_BOUNDS,
        ),
    ],
)
def test_the_verdict_of_one_observation(changes: dict[str, object], status: Status) -> None:
    observation = replace(GOOD, **changes)  # type: ignore[arg-type]
    verdict = verify(Played([observation]), brief([Case()]), lambda event: None)
    assert verdict.status is status
    if status is not Status.VERIFIED:
        assert verdict.failures[0].case == str(Case())
        assert verdict.failures[0].evidence


def test_a_bad_access_at_2_to_31_elements_points_to_a_short_index() -> None:
    large = replace(RUN, inputs=(replace(facts("input[0]"), shape=(1 << 16, 1 << 15)),))
    fault = Fault(kind=FaultKind.BAD_ACCESS, message="an illegal memory access")
    (check,) = examine(replace(GOOD, reference=large, candidate=fault), NO_LESS_ACCURATE)
    assert "2147483648 elements: is an index of 32 bits too short?" in check.evidence
    (check,) = examine(replace(GOOD, candidate=fault), NO_LESS_ACCURATE)
    assert check.evidence == "an illegal memory access"


def test_what_both_do_is_no_failure() -> None:
    settings = (("default dtype", "a -> b"), ("time.time", REPLACED))
    both = replace(RUN, random="1f", settings=settings)
    both = replace(both, changed=("state.mean",), aliases=(("output", "input[0]"),))
    updated = (METRICS, replace(METRICS, name="state.mean"))
    seen = replace(GOOD, reference=both, candidate=both, comparisons=updated)
    checks = examine(seen, NO_LESS_ACCURATE)
    assert all(check.outcome is Outcome.PASSED for check in checks)


def test_other_strides_and_rounding_between_runs_are_warnings() -> None:
    spread = replace(RUN, outputs=(facts("output", strides=(1, 2)),))
    observation = replace(GOOD, candidate=spread, repeats=(METRICS,))
    names = {
        check.name
        for check in examine(observation, NO_LESS_ACCURATE)
        if check.outcome is Outcome.WARNING
    }
    assert names == {"strides", "repeat"}


def test_a_case_that_the_reference_refuses_is_skipped() -> None:
    observation = replace(
        GOOD, reference=Refusal(message="log of a negative number"), comparisons=()
    )
    (check,) = examine(observation, NO_LESS_ACCURATE)
    assert check.outcome is Outcome.SKIPPED
    assert "log of a negative number" in check.evidence


class Played:
    """A session that plays back observations."""

    def __init__(self, observations: list[Observation], fault: Fault | None = None) -> None:
        self.left = list(observations)
        self.fault = fault
        self.probed: list[Case] = []
        self.undecided: list[tuple[str, ...] | None] = []

    def build(self) -> BuildFacts:
        return BuildFacts(seconds=1.5, fault=self.fault)

    def run(self, case: Case) -> Observation:
        return replace(self.left.pop(0), case=case)

    def probe(self, case: Case) -> tuple[str, ...] | None:
        self.probed.append(case)
        return self.undecided.pop(0)


def brief(cases: list[Case], demand: Demand = Demand.REQUIRED) -> Brief:
    return Brief(
        cases=[PlannedCase(case=case, demand=demand, purpose="test") for case in cases],
        demands=Demands(),
        tolerance=NO_LESS_ACCURATE,
        target="cuda",
        sizes={},
    )


def test_verification_stops_at_the_first_failure() -> None:
    session = Played([GOOD, replace(GOOD, comparisons=(WRONG,)), GOOD])
    events: list[Event] = []
    verdict = verify(session, brief([Case(seed=seed) for seed in range(3)]), events.append)
    assert len(session.left) == 1
    assert verdict.status is Status.WRONG_VALUES
    assert verdict.failures[0].case == str(Case(seed=1))
    assert [(event.stage, event.done, event.total) for event in events] == [
        ("build", 0, 1),
        ("verify", 0, 3),
        ("verify", 1, 3),
    ]


def test_wrong_answers_are_tried_until_each_was_refused() -> None:
    session = Played([GOOD] * 5)
    # The first is too large to try any on.
    session.undecided = [None, ("zeros", "a constant"), ("zeros",), ()]
    cases = [Case(seed=seed) for seed in range(5)]
    verdict = verify(session, replace(brief(cases), probes=3), lambda event: None)
    assert session.probed == cases[:4]
    assert not verdict.warnings
    session = Played([GOOD] * 5)
    session.undecided = [("zeros",), ("zeros",)]
    verdict = verify(session, replace(brief(cases), probes=2), lambda event: None)
    (warning,) = verdict.warnings
    assert warning.evidence == "this problem cannot tell a right answer from zeros"
    assert verdict.status is Status.VERIFIED


def test_a_file_for_one_size_is_asked_at_that_size_instead() -> None:
    refused = replace(GOOD, candidate=Fault(kind=FaultKind.REFUSED, message="ValueError: size"))
    small = Case(seed=3, sizes=(("N", 8),))
    planned = PlannedCase(
        case=small,
        demand=Demand.REQUIRED,
        purpose="test",
        refusal=Demand.SKIPPED,
        instead=Case(seed=3),
    )
    asked = replace(brief([]), cases=[planned])
    verdict = verify(Played([refused, GOOD]), asked, lambda event: None)
    assert verdict.status is Status.VERIFIED
    assert {check.case for check in verdict.checks if check.name == "values"} == {str(Case(seed=3))}
    wrong = replace(GOOD, comparisons=(WRONG,))
    assert verify(Played([refused, wrong]), asked, lambda event: None).status is Status.WRONG_VALUES
    assert verify(Played([refused, refused]), asked, lambda event: None).status is Status.CRASHED


def test_sizes_that_were_refused_are_not_asked_again_where_there_are_others() -> None:
    refused = replace(GOOD, candidate=Fault(kind=FaultKind.REFUSED, message="ValueError: size"))
    cases = [Case(seed=seed) for seed in range(3)]
    planned = [
        PlannedCase(
            case=replace(case, sizes=(("N", 8),)),
            demand=Demand.REQUIRED,
            purpose="test",
            refusal=Demand.SKIPPED,
            instead=case,
        )
        for case in cases
    ]
    session = Played([refused, GOOD, GOOD, GOOD])
    verdict = verify(session, replace(brief([]), cases=planned), lambda event: None)
    assert verdict.status is Status.VERIFIED
    values = [check.case for check in verdict.checks if check.name == "values"]
    assert values == [str(case) for case in cases]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"comparisons": (WRONG,)}, Status.WRONG_VALUES),
        ({"repeats": (WRONG,)}, Status.NOT_DETERMINISTIC),
    ],
)
def test_after_wrong_values_it_is_asked_where_they_are_right(
    changes: dict[str, object], status: Status
) -> None:
    odd, even = Case(sizes=(("N", 33),)), Case(sizes=(("N", 32),))
    wrong = replace(GOOD, **changes)  # type: ignore[arg-type]
    verdict = verify(Played([wrong, GOOD]), brief([odd, even]), lambda event: None)
    assert verdict.status is status
    (warning,) = verdict.warnings
    assert warning.evidence.startswith("right at N = 32, wrong at N = 33: ")
    assert not verify(Played([wrong, wrong]), brief([odd, even]), lambda event: None).warnings


def test_a_failure_that_nobody_demands_is_a_warning() -> None:
    session = Played([replace(GOOD, comparisons=(WRONG,))])
    verdict = verify(session, brief([Case()], Demand.REPORTED), lambda event: None)
    assert verdict.status is Status.VERIFIED
    assert [check.name for check in verdict.warnings] == ["values"]


@pytest.mark.parametrize("stated", [Demand.REQUIRED, Demand.REPORTED])
def test_nobody_waits_for_demands_of_what_holds(stated: Demand) -> None:
    asked: list[Demands] = []

    def settled() -> Demands:
        asked.append(Demands(nan=Demand.REPORTED))
        return asked[-1]

    cases = [Case(), Case(distribution=Distribution.NAN)]
    known_later = replace(brief(cases, stated), settled=settled)
    assert verify(Played([GOOD, GOOD]), known_later, lambda event: None).status is Status.VERIFIED
    assert not asked
    session = Played([GOOD, replace(GOOD, comparisons=(WRONG,))])
    verdict = verify(session, known_later, lambda event: None)
    assert verdict.status is Status.VERIFIED
    assert [check.case for check in verdict.warnings] == [str(cases[1])]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("stated", "found", "status"),
    [
        (Demand.REQUIRED, Demand.REQUIRED, Status.WRONG_WHERE_NOT_FINITE),
        (Demand.REPORTED, Demand.REQUIRED, Status.WRONG_WHERE_NOT_FINITE),
        (Demand.REQUIRED, Demand.REPORTED, Status.VERIFIED),
        (Demand.SKIPPED, Demand.REPORTED, Status.VERIFIED),
        (Demand.SKIPPED, Demand.REQUIRED, Status.WRONG_WHERE_NOT_FINITE),
    ],
)
def test_what_fails_counts_as_it_is_demanded_in_the_end(
    stated: Demand, found: Demand, status: Status
) -> None:
    cases = [
        PlannedCase(case=Case(), demand=Demand.REQUIRED, purpose="test"),
        PlannedCase(case=Case(distribution=Distribution.NAN), demand=stated, purpose="test"),
    ]
    known_later = replace(brief([]), cases=cases, settled=lambda: Demands(nan=found))
    session = Played([GOOD, replace(GOOD, comparisons=(WRONG,))])
    assert verify(session, known_later, lambda event: None).status is status
    assert not session.left


def test_what_does_not_build_is_not_run() -> None:
    fault = Fault(kind=FaultKind.BUILD, message="identifier x is undefined", location="new.py:7")
    verdict = verify(Played([], fault), brief([Case()]), lambda event: None)
    assert verdict.status is Status.BUILD_FAILED
    assert verdict.summary == "identifier x is undefined at new.py:7"
    assert verdict.status.exit_code is ExitCode.DOES_NOT_BUILD


def test_a_constructor_that_refuses_the_emulators_sizes_is_unsupported() -> None:
    fault = Fault(kind=FaultKind.REFUSED, message="ValueError: specialised to 8192")
    shrunk = replace(brief([Case()]), target="cpu", sizes={"N": 33})
    verdict = verify(Played([], fault), shrunk, lambda event: None)
    assert verdict.status is Status.UNSUPPORTED
    assert "judge it on a GPU" in verdict.summary
    at_its_own_sizes = replace(shrunk, sizes={})
    verdict = verify(Played([], fault), at_its_own_sizes, lambda event: None)
    assert verdict.status is Status.BUILD_FAILED


def test_exit_codes() -> None:
    codes = {status: status.exit_code for status in Status}
    assert codes[Status.VERIFIED_FASTER] == codes[Status.VERIFIED] == 0
    assert codes[Status.VERIFIED_NOT_FASTER] == 2
    assert codes[Status.UNSUPPORTED] == 4
    assert codes[Status.RACE] == codes[Status.CRASHED] == codes[Status.WRONG_VALUES] == 1


def test_the_verdict_as_json() -> None:
    session = Played([replace(GOOD, comparisons=(replace(WRONG, candidate_rmse=float("inf")),))])
    verdict = verify(session, brief([Case()]), lambda event: None)
    text = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
    assert text["status"] == "wrong values"
    assert text["exit_code"] == 1
    failed = [check for check in text["checks"] if check["outcome"] == "failed"]
    assert str(Case()) in failed[0]["reproduce"]


def test_nothing_to_compare_is_no_verification() -> None:
    refusal = replace(GOOD, reference=Refusal(message="log of a negative number"), comparisons=())
    verdict = verify(Played([refusal]), brief([Case()]), lambda event: None)
    assert verdict.status is Status.UNSUPPORTED
    assert "log of a negative number" in verdict.summary


def test_the_numbers_behind_a_comparison_go_with_its_check() -> None:
    twice = replace(METRICS, rms=2.0, reference_rmse=4e-7)
    observation = replace(GOOD, comparisons=(twice, replace(METRICS, name="output", rms=0.0)))
    checks = {check.name: check for check in examine(observation, NO_LESS_ACCURATE)}
    (errors,) = checks["values"].errors
    assert (errors.name, errors.candidate, errors.reference) == ("output", 5e-8, 2e-7)
    assert all(not check.errors for name, check in checks.items() if name != "values")
