"""Run the planned cases until one decides, and conclude."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from kernelwright.verify.cases import Case, Demand, Demands, PlannedCase, Sizes, Weights
from kernelwright.verify.checks import RUNS, examine
from kernelwright.verify.distributions import NOT_FINITE, Distribution
from kernelwright.verify.drop_in import Weighing
from kernelwright.verify.observation import Fault, FaultKind, Observation, status_of
from kernelwright.verify.tolerance import Tolerance
from kernelwright.verify.verdict import DROP_IN, VALUES, Check, Outcome, Status, Verdict, conclude


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show while judging takes its time."""

    stage: str
    """"build", "verify" or "time"."""
    message: str
    done: int
    total: int
    """Steps of the stage; `done` of them are finished."""


Progress = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """How making the candidate ready to run went."""

    seconds: float
    fault: Fault | None


class Session(Protocol):
    """Runs reference and candidate, each isolated; the room worker has the real one."""

    def build(self) -> BuildFacts:
        """Import the candidate and construct its module."""
        ...

    def run(self, case: Case) -> Observation:
        """Run both on one case and compare."""
        ...

    def probe(self, case: Case) -> tuple[str, ...] | None:
        """Wrong answers that no case so far would refuse, after the latest one, `case`.

        None where nothing was tried.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a verification is asked."""

    cases: Sequence[PlannedCase]
    demands: Demands
    tolerance: Tolerance
    target: str
    """"cuda" or "cpu"."""
    sizes: Mapping[str, int]
    """Constants replaced for the sizes under judgement."""
    reduced: Sizes = ()
    """Those of a problem of gigabytes at the sizes where most is asked; else empty."""
    settled: Callable[[], Demands] | None = None
    """`demands` once it is known what means nothing in this problem, of inputs with NaN or Inf, of
    which it may report what fails: to find out may take as long as everything that is asked, so
    nobody waits for it before something fails. None: as they are."""
    static_checks: tuple[Check, ...] = ()
    """What reading the file already showed, and what is known before anything runs."""
    further: Sequence[PlannedCase] = ()
    """What is asked besides of a file that is no drop-in."""
    probes: int = 0
    """Cases at most after which wrong answers are tried on the problem itself."""


def verify(session: Session, brief: Brief, progress: Progress) -> Verdict:
    """The verdict on the candidate of `session`; stops at the first demanded check that fails.

    Where demands are settled later, what they are less than usual (`leniency`) is not part of it.
    """
    progress(Event(stage="build", message="building the candidate", done=0, total=1))
    built = session.build()
    checks = [*brief.static_checks, _build_check(built, brief)]
    if built.fault is None:
        checks += _run_cases(session, brief, progress)
    if brief.settled is None:
        checks += leniency(brief.demands)
    return conclude(
        tuple(checks), target=brief.target, sizes=brief.sizes, build_seconds=built.seconds
    )


def leniency(demands: Demands) -> tuple[Check, ...]:
    """That less was asked of the candidate than of any other, so that nobody takes it for more."""
    less = demands.less_than(Demands())
    if not less:
        return ()
    evidence = f"less is asked than of other files: {', '.join(less)}"
    return (Check(name="demands", outcome=Outcome.WARNING, evidence=evidence),)


def _run_cases(session: Session, brief: Brief, progress: Progress) -> list[Check]:
    checks: list[Check] = []
    prober, weighing = _Prober(session, brief.probes), Weighing()
    refused: set[Sizes] = set()
    for done, planned in enumerate(_planned(brief, checks)):
        found: list[Check] = []
        demanded = planned
        for case in _in_turn(planned, refused):
            message = f"{planned.purpose}: {case}"
            progress(Event(stage="verify", message=message, done=done, total=len(brief.cases)))
            observation = session.run(case)
            observed = weighing.weighed(observation, examine(observation, brief.tolerance))
            if any(check.outcome is Outcome.FAILED for check in observed):
                demanded = _as_settled(planned, brief)  # of what holds, the demand says nothing
            asked = replace(demanded, case=case, refusal=_refusal(planned, case))
            found = [it for check in observed for it in _as_demanded(check, asked, brief.demands)]
            found = _as_only_failure(found, checks, case.distribution)
            checks += found
            if not any(_permitted_refusal(check, planned) for check in observed):
                break
            refused.add(case.sizes)
        if any(check.outcome is Outcome.FAILED for check in found):
            return [*checks, *_right_elsewhere(session, brief, found)]
        if any(check.name == VALUES for check in found):
            prober.probe(case)
    return [*checks, *prober.checks()]


def _planned(brief: Brief, checks: list[Check]) -> Iterator[PlannedCase]:
    """The cases, and the further ones where `checks`, which grow, have lost the drop-in."""
    for planned in brief.cases:
        skipped = planned.demand is Demand.SKIPPED
        asked = _as_settled(planned, brief) if skipped else planned
        if asked.demand is not Demand.SKIPPED:
            yield asked
    if any(it.name == DROP_IN and it.outcome is Outcome.WARNING for it in checks):
        yield from brief.further


def _as_settled(planned: PlannedCase, brief: Brief) -> PlannedCase:
    """The case as it is demanded in the end."""
    if brief.settled is None or planned.case.distribution not in NOT_FINITE:
        return planned
    demands = brief.settled()
    found = demands.nan if planned.case.distribution is Distribution.NAN else demands.infinite
    return replace(planned, demand=found)


def _as_only_failure(
    found: list[Check], before: Sequence[Check], distribution: Distribution
) -> list[Check]:
    """Failures of inputs with NaN or Inf, after a file was right on everything else."""
    right = sum(it.name == VALUES and it.outcome is Outcome.PASSED for it in before)
    if distribution not in NOT_FINITE or not right:
        return found
    word = distribution.value
    text = (
        f"right on {right} other sets of inputs; where inputs have {_IN_WORDS[distribution]} it is "
        f"not, which `--demand {word}=reported` accepts"
    )
    return [
        replace(it, status=Status.WRONG_WHERE_NOT_FINITE, evidence=f"{text}: {it.evidence}")
        if it.outcome is Outcome.FAILED and it.status in _OF_SIZES
        else it
        for it in found
    ]


_IN_WORDS = {Distribution.NAN: "NaN", Distribution.INFINITE: "Inf"}


def _in_turn(planned: PlannedCase, refused: Set[Sizes]) -> Iterator[Case]:
    """The case, then what to run instead; only that at sizes that were refused before."""
    if planned.instead is None or planned.case.sizes not in refused:
        yield planned.case
    if planned.instead is not None:
        yield planned.instead


def _right_elsewhere(session: Session, brief: Brief, found: Sequence[Check]) -> Iterator[Check]:
    """At which other sizes the values are right, after they were wrong on plain inputs."""
    first = next(check for check in found if check.outcome is Outcome.FAILED)
    case = Case.parse(first.case)
    if first.status not in _OF_SIZES or case != Case(seed=case.seed, sizes=case.sizes):
        return
    plain = {it.case.sizes for it in brief.cases if it.case == Case(sizes=it.case.sizes)}
    for sizes in sorted(plain - {case.sizes}):
        observed = examine(session.run(Case(sizes=sizes)), brief.tolerance)
        ran = any(check.name == VALUES for check in observed)
        if ran and all(check.outcome is not Outcome.FAILED for check in observed):
            here, there = (
                ", ".join(f"{name} = {value}" for name, value in which) or "its own sizes"
                for which in (case.sizes, sizes)
            )
            yield Check(
                name="other sizes",
                outcome=Outcome.WARNING,
                evidence=f"right at {there}, wrong at {here}: does something depend on a size, "
                "such as a last, partly filled tile?",
                case=str(Case(sizes=sizes)),
            )
            return


_OF_SIZES = (Status.WRONG_VALUES, Status.NOT_DETERMINISTIC)
"""What a tile that does not fit leads to: what lies behind the end is another in each run."""


def _refusal(planned: PlannedCase, case: Case | None) -> Demand:
    """What a refusal means: at the sizes that it is asked at instead, it may not refuse."""
    return planned.refusal if case == planned.case else Demand.REQUIRED


class _Prober:
    """Finds out which wrong answers the cases cannot tell from right ones."""

    def __init__(self, session: Session, probes: int) -> None:
        self._session = session
        self._left = probes
        self._undecided: tuple[str, ...] | None = None

    def probe(self, case: Case | None) -> None:
        """Try, on the latest case, the wrong answers that none has refused yet."""
        if self._left == 0 or self._undecided == () or case is None:
            return
        if case.distribution not in NOT_FINITE:
            undecided = self._session.probe(case)
            if undecided is not None:
                self._left -= 1
                self._undecided = undecided

    def checks(self) -> Iterator[Check]:
        """Nothing where nothing was tried."""
        match self._undecided:
            case None:
                return
            case ():
                yield Check(
                    name=DISCRIMINATION,
                    outcome=Outcome.PASSED,
                    evidence="zeros, a constant, and the reference with other weights, ignored "
                    "inputs or rounded operands would be refused",
                )
            case words:
                yield Check(
                    name=DISCRIMINATION,
                    outcome=Outcome.WARNING,
                    evidence="this problem cannot tell a right answer from " + ", ".join(words),
                )


DISCRIMINATION = "discrimination"
"""Name of the check of the problem itself."""


def _build_check(built: BuildFacts, brief: Brief) -> Check:
    if built.fault is None:
        return Check(
            name="builds",
            outcome=Outcome.PASSED,
            evidence=f"imported and constructed in {built.seconds:.1f} s",
            status=Status.BUILD_FAILED,
        )
    where = f" at {built.fault.location}" if built.fault.location else ""
    evidence = f"{built.fault.message}{where}"
    status = Status.BUILD_FAILED if built.fault.kind in _BUILDING else status_of(built.fault)
    if built.fault.kind is FaultKind.REFUSED and brief.target == "cpu" and brief.sizes:
        # It may well be right at the problem's own sizes, which are too large to run here.
        status, evidence = Status.UNSUPPORTED, f"{evidence}. {_WANTS_OWN_SIZES}"
    return Check(name="builds", outcome=Outcome.FAILED, evidence=evidence, status=status)


_BUILDING = (FaultKind.BUILD, FaultKind.REFUSED)
_WANTS_OWN_SIZES = (
    "The emulator runs the problem at smaller sizes, which this file's constructor refuses: judge "
    "it on a GPU. (`kernelwright optimize` writes and verifies the same kernels at small sizes.)"
)


def _as_demanded(check: Check, planned: PlannedCase, demands: Demands) -> Iterator[Check]:
    """The check as it counts in this case; nothing where it was not asked for."""
    demand = demands.drop_in if check.name == DROP_IN else planned.demand
    if demand is Demand.SKIPPED:
        return
    if planned.case.weights is Weights.LOADED:
        demand = demand if check.name == DROP_IN else Demand.REQUIRED
    match demand:
        case Demand.REQUIRED if _permitted_refusal(check, planned):
            yield replace(check, outcome=Outcome.SKIPPED, evidence=f"refused: {check.evidence}")
        case Demand.REQUIRED:
            yield check
        case Demand.REPORTED:
            yield check.demoted()


def _permitted_refusal(check: Check, planned: PlannedCase) -> bool:
    refused = check.name == RUNS and check.status is Status.UNSUPPORTED
    return refused and planned.refusal is Demand.SKIPPED
