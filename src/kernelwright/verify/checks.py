"""Facts to checks: each function looks at one property of an observation.

`CHECKS` lists them in the order in which they explain: a race makes wrong values, wrong values do
not make a race.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from kernelwright.verify.drop_in import check_state
from kernelwright.verify.nesting import PLAIN
from kernelwright.verify.observation import (
    LATER_RESULTS,
    REPLACED,
    UNUSED,
    Fault,
    FaultKind,
    Observation,
    Refusal,
    RunFacts,
    TensorFacts,
    status_of,
)
from kernelwright.verify.tolerance import ErrorMetrics, Tolerance, rule
from kernelwright.verify.verdict import VALUES, Check, Errors, Outcome, Status

RUNS = "runs"
"""Name of the check that both ran."""


def examine(observation: Observation, tolerance: Tolerance) -> tuple[Check, ...]:
    """All checks of one observation, the most telling first."""
    return tuple(check for examiner in CHECKS for check in examiner(observation, tolerance))


def _check(
    name: str, observation: Observation, problems: list[str], status: Status, passed: str
) -> Check:
    """PASSED with the text `passed`, or FAILED with the problems."""
    return Check(
        name=name,
        outcome=Outcome.FAILED if problems else Outcome.PASSED,
        evidence="; ".join(problems) if problems else passed,
        status=status,
        case=str(observation.case),
    )


def check_findings(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Faults that the emulator saw inside kernels, races first: they explain much else."""
    del tolerance
    races = (finding for finding in observation.findings if status_of(finding) is Status.RACE)
    others = (it for it in observation.findings if status_of(it) is not Status.RACE)
    for finding in (*races, *others):
        yield _check(
            "kernel checks",
            observation,
            [f"{finding.kind.value}: {finding.message}"],
            status_of(finding),
            "",
        )


def check_runs(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Both ran."""
    del tolerance
    match observation.reference, observation.candidate:
        case Refusal(message=message), _:
            yield Check(
                name=RUNS,
                outcome=Outcome.SKIPPED,
                evidence=f"the reference does not take this case: {message}",
                case=str(observation.case),
            )
        case RunFacts(), Fault(kind=kind) as fault if not observation.findings:
            where = f" at {fault.location}" if fault.location else ""
            status = status_of(fault)
            if kind is FaultKind.REFUSED and observation.case.sizes:
                # Nothing is known about the file's own sizes, which the target cannot run.
                status = Status.UNSUPPORTED
            text = f"{fault.message}{where}{_short_index(observation, fault)}"
            yield _check(RUNS, observation, [text], status, "")


_INT32_ELEMENTS = 1 << 31


def _short_index(observation: Observation, fault: Fault) -> str:
    """A hint where a kernel ran out of bounds of tensors that 32 bits cannot index."""
    run = observation.reference
    if fault.kind is not FaultKind.BAD_ACCESS or not isinstance(run, RunFacts):
        return ""
    largest = max((math.prod(it.shape) for it in (*run.inputs, *run.outputs)), default=0)
    if largest < _INT32_ELEMENTS:
        return ""
    return f". A tensor has {largest} elements: is an index of 32 bits too short?"


def check_inputs_agree(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Both saw the same values: `get_inputs` gives the same under the same seed."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts(inputs=first), RunFacts(inputs=second):
            problems = [
                f"{left.name} differs between two processes under one seed"
                for left, right in zip(first, second, strict=False)
                if left.fingerprint != right.fingerprint
            ]
            if problems:
                yield _check("same inputs", observation, problems, Status.UNSUPPORTED, "")


def check_real(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Results are torch's own tensors with memory behind them, not promises to compute later."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts() as expected, RunFacts() as found:
            pairs = zip(expected.outputs, found.outputs, strict=False)
            problems = [text for left, right in pairs if (text := _unreal(left, right))]
            yield _check("real tensors", observation, problems, Status.CHEATING, "all of them")


def _unreal(expected: TensorFacts, found: TensorFacts) -> str:
    """What is wrong with the kind of tensor that was found, or nothing."""
    if found.kind not in (PLAIN, expected.kind):
        return (
            f"{found.name} is a {found.kind}, a class that may compute when it is looked at; "
            f"return a torch.Tensor"
        )
    if expected.stored and not found.stored:
        return f"{found.name} has no memory of its own for {list(found.shape)} elements"
    return ""


def check_form(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Containers, shapes, dtypes and devices of the result; other strides are a warning."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts() as expected, RunFacts() as found:
            problems = _form_problems(expected, found)
            passed = ", ".join(
                f"{facts.name} {facts.dtype}{list(facts.shape)}" for facts in expected.outputs
            )
            yield _check("form", observation, problems, Status.WRONG_SHAPE_OR_DTYPE, passed)
            if not problems:
                yield from _stride_warnings(observation, expected, found)


def _form_problems(expected: RunFacts, found: RunFacts) -> list[str]:
    if expected.structure != found.structure:
        return [f"the result is {found.structure}, should be {expected.structure}"]
    problems = []
    for left, right in zip(expected.outputs, found.outputs, strict=True):
        if _unreal(left, right):
            continue
        should, is_ = [
            f"{facts.dtype}{list(facts.shape)} on {facts.place}" for facts in (left, right)
        ]
        if should != is_:
            problems.append(f"{right.name} is {is_}, should be {should}")
    return problems


def _stride_warnings(
    observation: Observation, expected: RunFacts, found: RunFacts
) -> Iterator[Check]:
    for left, right in zip(expected.outputs, found.outputs, strict=True):
        if left.strides != right.strides and observation.case.layout.value == "as-made":
            yield Check(
                name="strides",
                outcome=Outcome.WARNING,
                evidence=f"{right.name} has strides {list(right.strides)}, the reference's "
                f"{list(left.strides)}",
                case=str(observation.case),
            )


def check_unchanged(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Inputs, parameters and buffers change exactly where the reference changes them.

    Buffers of a candidate's own are its own business: they stand for nothing of the reference's.

    What the reference's call changed by rounding only, as the mean of what was normalised before,
    may stay as it was, and what it left only because a rounding took the change away may change:
    then that is no less accurate.
    """
    seen = observation.comparisons
    right = {metrics.name for metrics in seen if rule(metrics, tolerance).accepted}
    match observation.reference, observation.candidate:
        case RunFacts(changed=expected), RunFacts(changed=found):
            more = [name for name in found if name not in expected and name not in right]
            left = [name for name in expected if name not in found and name not in right]
        case _:
            return
    inputs = [f"{name} was changed" for name in more if not name.startswith(_STATE)]
    state = [f"{name} was changed" for name in more if name.startswith(_STATE)]
    missing = [f"{name} was not updated" for name in left]
    passed = f"{len(expected)} changed, as by the reference" if expected else "none changed"
    yield _check("inputs", observation, inputs, Status.INPUT_CHANGED, passed)
    if state:
        yield _check("state", observation, state, Status.SIDE_EFFECT, "")
    if missing:
        yield _check("state", observation, missing, Status.STATE_NOT_UPDATED, "")


_STATE = "state."
"""How names of parameters and buffers begin among what a call may change."""


def check_aliases(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Outputs share memory with nothing that the reference's do not share it with."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts(aliases=expected), RunFacts(aliases=found):
            extra = [pair for pair in found if pair not in expected]
            problems = [f"{output} shares memory with {owner}" for output, owner in extra]
            overwritten = any(owner in LATER_RESULTS for _, owner in extra)
            status = Status.RESULT_OVERWRITTEN if overwritten else Status.RESULT_SHARED
            yield _check("aliasing", observation, problems, status, "outputs own their memory")


_HARMLESS = frozenset({"cudnn.benchmark", "cudnn.allow_tf32", "cudnn.deterministic"})
"""Flags that change how PyTorch's own operators run, but not what they may round."""


def check_settings(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Global flags and functions of torch are left alone, or changed as the reference does."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts(settings=expected), RunFacts(settings=found):
            extra = [(name, how) for name, how in found if (name, how) not in expected]
        case _:
            return
    replaced = [f"{name} was replaced" for name, how in extra if how == REPLACED]
    if replaced:
        yield _check("functions", observation, replaced, Status.CHEATING, "")
    flags = [(name, f"{name}: {how}") for name, how in extra if how != REPLACED]
    serious = [text for name, text in flags if name not in _HARMLESS]
    yield _check("global flags", observation, serious, Status.SIDE_EFFECT, "none changed")
    for name, text in flags:
        if name in _HARMLESS:
            yield Check(
                name="global flags",
                outcome=Outcome.WARNING,
                evidence=f"{text}, for everything in the process",
                case=str(observation.case),
            )


def check_random(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Random numbers are drawn where the reference draws them, and nowhere else."""
    del tolerance
    match observation.reference, observation.candidate:
        case RunFacts(random=expected), RunFacts(random=found) if expected != found:
            if expected == UNUSED:
                text = "it draws from torch's random generator, which the reference leaves alone"
                yield _check("random state", observation, [text], Status.SIDE_EFFECT, "")
                return
            yield Check(
                name="random state",
                outcome=Outcome.WARNING,
                evidence="torch's random generator is left in another state than by the reference",
                case=str(observation.case),
            )


def check_repeat(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """A second run gives the same; differences within the tolerance are a warning."""
    if isinstance(observation.reference, Refusal) or isinstance(observation.candidate, Fault):
        return
    if observation.repeats is None:
        yield _check(
            "repeat", observation, [], Status.NOT_DETERMINISTIC, "a second run is bitwise the same"
        )
        return
    first = _value_problems(observation.comparisons, tolerance)
    second = _value_problems(observation.repeats, tolerance)
    if unwritten := _unwritten(observation):
        text = f"{first[0]}, and a second run differs: {unwritten} has memory that nothing wrote"
        yield _check("repeat", observation, [text], Status.WRONG_VALUES, "")
        return
    if first or second:
        text = f"two runs on the same inputs differ: {(first + second)[-1]}"
        if not second:
            text += (
                ". The first is wrong, whose arguments lie where others lay before; the second is "
                "right where they are new: is a result remembered by its arguments' address?"
            )
        yield _check("repeat", observation, [text], Status.NOT_DETERMINISTIC, "")
        return
    yield Check(
        name="repeat",
        outcome=Outcome.WARNING,
        evidence="two runs on the same inputs differ by rounding (atomics?); both are within "
        "the tolerance",
        case=str(observation.case),
    )


def _unwritten(observation: Observation) -> str:
    """Names of results that have the NaN in both runs that memory is filled with before a call."""
    runs = (observation.comparisons, observation.repeats or ())
    strange = [{it.name for it in run if it.epsilon and it.mismatches} for run in runs]
    return ", ".join(sorted(set.intersection(*strange)))


def check_memory(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """A wrong result that an earlier call gave for other inputs was remembered, not computed."""
    if not isinstance(observation.candidate, RunFacts) or not observation.candidate.replayed:
        return
    runs = (*observation.comparisons, *(observation.repeats or ()))
    # What is wrong in another tensor is no sign that this one was remembered.
    again = [it for it in runs if it.name in observation.candidate.replayed]
    ruled = [(it.name, rule(it, tolerance)) for it in again]
    if wrong := {name: ruling.reason for name, ruling in ruled if not ruling.accepted}:
        names, reason = ", ".join(wrong), next(iter(wrong.values()))
        text = (
            f"{names} is bit for bit what an earlier call gave for other inputs: it is remembered "
            f"by something that does not tell inputs apart, not computed. {reason}"
        )
        yield _check("computed anew", observation, [text], Status.CHEATING, "")


def check_threads(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """No thread of the file's is at work when a call has returned."""
    del tolerance
    if isinstance(observation.candidate, RunFacts) and observation.candidate.threads:
        names = ", ".join(observation.candidate.threads)
        text = f"threads that it started are still running when the call has returned: {names}"
        yield _check("threads", observation, [text], Status.CHEATING, "")


def check_values(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """No less accurate than the reference."""
    match observation.reference, observation.candidate:
        case RunFacts() as expected, RunFacts() as found if not _form_problems(expected, found):
            asked = [*(facts.name for facts in expected.outputs), *expected.changed]
        case RunFacts(), RunFacts():
            asked = []
        case _:
            return
    given = {metrics.name for metrics in observation.comparisons}
    problems = [f"there are no values of {name}" for name in asked if name not in given]
    if not problems and not given:
        return
    problems += _value_problems(observation.comparisons, tolerance)
    passed = "; ".join(rule(metrics, tolerance).reason for metrics in observation.comparisons)
    check = _check(VALUES, observation, problems, Status.WRONG_VALUES, passed)
    yield replace(check, errors=tuple(_errors(observation.comparisons)))
    for note in sorted({metrics.note for metrics in observation.comparisons if metrics.note}):
        yield Check(
            name="oracle", outcome=Outcome.WARNING, evidence=note, case=str(observation.case)
        )


def _errors(comparisons: tuple[ErrorMetrics, ...]) -> Iterator[Errors]:
    for it in comparisons:
        if it.rms > 0:
            candidate, reference = it.candidate_rmse / it.rms, it.reference_rmse / it.rms
            yield Errors(name=it.name, candidate=candidate, reference=reference)


def _value_problems(comparisons: tuple[ErrorMetrics, ...], tolerance: Tolerance) -> list[str]:
    rulings = [rule(metrics, tolerance) for metrics in comparisons]
    return [ruling.reason for ruling in rulings if not ruling.accepted]


CHECKS: tuple[Callable[[Observation, Tolerance], Iterator[Check]], ...] = (
    check_findings,
    check_runs,
    check_settings,
    check_inputs_agree,
    check_real,
    check_form,
    check_unchanged,
    check_aliases,
    check_random,
    check_threads,
    check_memory,
    check_repeat,
    check_values,
    check_state,
)
