"""Whether a candidate takes other weights as the reference does, and whether it looks at all.

A file whose state has other names or other contents is judged by what it computes. What it then
cannot do for a user is a grade and no refusal; but weights that it never looks at are refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelwright.verify.cases import Weights
from kernelwright.verify.observation import Observation, StateFacts
from kernelwright.verify.state import same_keys, without_counterpart
from kernelwright.verify.tolerance import Tolerance
from kernelwright.verify.verdict import DROP_IN, VALUES, Check, Outcome, Status

_KEYS = "load_state_dict has other keys"
_VALUES = "load_state_dict means other values"
_FOLLOWING = "does not follow weights that change after construction"


def check_state(observation: Observation, tolerance: Tolerance) -> Iterator[Check]:
    """Whether parameters and buffers are the reference's, in order and under one seed in value."""
    del tolerance
    expected, found = observation.reference_state, observation.candidate_state
    if observation.case.weights is not Weights.MADE or expected is None or found is None:
        return
    if not expected.tensors and not found.tensors:
        return
    problem = _difference(observation, expected, found)
    passed = f"{len(expected.tensors)} parameters and buffers with the same names, order and values"
    yield Check(
        name=DROP_IN,
        outcome=Outcome.FAILED if problem else Outcome.PASSED,
        evidence=problem or passed,
        status=Status.WRONG_STATE,
        case=str(observation.case),
    )


def _difference(observation: Observation, expected: StateFacts, found: StateFacts) -> str:
    """What is different between the two states, and what that means; empty for nothing."""
    if same_keys(expected, found):
        other = without_counterpart(expected, found, None)
        return f"{_VALUES}: {_listed(other)} under one seed" if other else ""
    links = observation.links or ()
    missing = without_counterpart(expected, found, links)
    linked = {link.candidate for link in links}
    parts = [
        _listed(
            [f"{it.candidate} for {it.reference}" for it in links if it.candidate != it.reference]
        ),
        _listed([f"{it.name} besides" for it in found.tensors if it.name not in linked]),
        _listed([f"nothing for {name}" for name in missing]),
    ]
    told = ", ".join(part for part in parts if part)
    return f"{_KEYS}: {told or 'the same ones in another order'}"


_SHOWN = 3


def _listed(words: Sequence[str]) -> str:
    """The first few of them, and how many there are besides."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


_OF_WEIGHTS = (Status.WRONG_VALUES, Status.NOT_DETERMINISTIC, Status.CRASHED)
"""What weights lead to that a file was not made with."""


class Weighing:
    """What the cases with other weights show, one after the other."""

    def __init__(self) -> None:
        self._follows = False
        """Whether it was right after every tensor that stands for one of the reference's was
        loaded."""

    def weighed(self, observation: Observation, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        """The checks of an observation as they count with its weights."""
        match observation.case.weights:
            case Weights.LOADED:
                return self._loaded(observation, checks)
            case Weights.DRAWN:
                return self._drawn(observation, checks)
        return checks

    def _loaded(self, observation: Observation, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        if unlike := _unlike(observation):
            return (_skipped(observation, unlike),)
        wrong = [check for check in checks if _is_wrong(check)]
        if not wrong:
            self._follows = any(check.name == VALUES for check in checks)
            return checks
        lost = replace(
            wrong[0],
            name=DROP_IN,
            evidence=f"{_FOLLOWING}: {wrong[0].evidence}",
            status=Status.WRONG_STATE,
        )
        serious = [it for it in checks if it.outcome is Outcome.FAILED and not _is_wrong(it)]
        return (*serious, lost)

    def _drawn(self, observation: Observation, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        unlike = _unlike(observation)
        if not unlike or not any(_is_wrong(check) for check in checks):
            return checks
        if self._follows:  # it has shown that it looks at what it could not be given here
            return (_skipped(observation, unlike),)
        text = f"{_listed(unlike)} left out, or right only as long as it is what a new module has"
        return tuple(
            replace(it, evidence=f"{text}: {it.evidence}") if _is_wrong(it) else it for it in checks
        )


def _is_wrong(check: Check) -> bool:
    return check.outcome is Outcome.FAILED and check.status in _OF_WEIGHTS


def _unlike(observation: Observation) -> tuple[str, ...]:
    """The reference's tensors of which the candidate has not the same values in this case."""
    expected, found = observation.reference_state, observation.candidate_state
    if expected is None or found is None:
        return ()
    return without_counterpart(expected, found, observation.links)


def _skipped(observation: Observation, unlike: Sequence[str]) -> Check:
    weights = observation.case.weights.value
    return Check(
        name="weights",
        outcome=Outcome.SKIPPED,
        evidence=f"its parameters and buffers are not made as the reference's are, so both cannot "
        f"be given the same others (weights={weights}): {_listed(unlike)}",
        case=str(observation.case),
    )
