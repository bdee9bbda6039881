"""Which tensor stands for which, and what is said where one cannot be given other weights."""

from dataclasses import replace

import pytest

from kernelwright.verify.cases import Case, Weights
from kernelwright.verify.checks import examine
from kernelwright.verify.drop_in import Weighing, check_state
from kernelwright.verify.observation import Links, Observation, StateFacts
from kernelwright.verify.state import link_state, without_counterpart
from kernelwright.verify.tolerance import NO_LESS_ACCURATE
from kernelwright.verify.verdict import DROP_IN, Check, Outcome, Status

from .observed import GOOD, WRONG, facts


def state(**marks: str) -> StateFacts:
    """Tensors by name with their values' checksum; two underscores stand for a point."""
    return StateFacts(tensors=tuple(facts(n.replace("__", "."), m) for n, m in marks.items()))


def pairs(links: Links) -> list[tuple[str, str]]:
    return [(link.reference, link.candidate) for link in links]


@pytest.mark.parametrize(
    ("expected", "found", "linked"),
    [
        (state(w="1", b="2"), state(b="2", w="1"), [("w", "w"), ("b", "b")]),
        (state(linear__w="1"), state(weight="1", extra="9"), [("linear.w", "weight")]),
        # A copy is what a checkpoint does not have; without a name of its own all of them stand.
        (state(w="1"), state(copy="1", w="1"), [("w", "w")]),
        (state(w="1"), state(one="1", two="1"), [("w", "one"), ("w", "two")]),
        # Several ones or zeros: by name, then by their order.
        (
            state(first="0", second="0", third="0"),
            state(second="0", one="0", two="0"),
            [("first", "one"), ("second", "second"), ("third", "two")],
        ),
        (state(first="0", second="0"), state(one="0"), [("first", "one")]),
        (state(w="1"), state(w="2"), []),
    ],
)
def test_what_has_the_same_values_stands_for_it(
    expected: StateFacts, found: StateFacts, linked: list[tuple[str, str]]
) -> None:
    links = link_state(expected, found)
    assert pairs(links) == linked
    stands = {name for name, _ in linked}
    missing = without_counterpart(expected, found, links)
    assert missing == tuple(it.name for it in expected.tensors if it.name not in stands)


def seen(expected: StateFacts, found: StateFacts, **changes: object) -> Observation:
    links = link_state(expected, found) if expected != found else None
    given = {"reference_state": expected, "candidate_state": found, "links": links, **changes}
    return replace(GOOD, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "evidence"),
    [
        (state(w="1", b="2"), ""),
        (state(b="2", w="1"), "load_state_dict has other keys: the same ones in another order"),
        (state(w="1", b="3"), "load_state_dict means other values: b under one seed"),
        (
            state(weight="1", b="3"),
            "load_state_dict has other keys: weight for w, b besides, nothing for b",
        ),
    ],
)
def test_what_is_lost_is_said(found: StateFacts, evidence: str) -> None:
    (check,) = check_state(seen(state(w="1", b="2"), found), NO_LESS_ACCURATE)
    assert check.status is Status.WRONG_STATE
    assert check.outcome is (Outcome.FAILED if evidence else Outcome.PASSED)
    if evidence:
        assert check.evidence == evidence


OTHER_NAMES = seen(state(w="1", b="2"), state(weight="1", bias="2"))
"""Both have a counterpart."""
ONE_MISSING = seen(state(w="1", b="2"), state(weight="1"))


def weighed(weighing: Weighing, observation: Observation, weights: Weights) -> tuple[Check, ...]:
    asked = replace(observation, case=Case(weights=weights))
    return weighing.weighed(asked, examine(asked, NO_LESS_ACCURATE))


def test_who_does_not_follow_loaded_weights_is_no_drop_in() -> None:
    wrong = replace(OTHER_NAMES, comparisons=(WRONG,))
    (check,) = weighed(Weighing(), wrong, Weights.LOADED)
    assert (check.name, check.status) == (DROP_IN, Status.WRONG_STATE)
    assert check.evidence.startswith("does not follow weights that change after construction: out")
    (skipped,) = weighed(Weighing(), replace(wrong, links=ONE_MISSING.links), Weights.LOADED)
    assert skipped.outcome is Outcome.SKIPPED


def test_only_who_follows_loaded_weights_may_make_constants_its_own_way() -> None:
    undrawn = replace(
        OTHER_NAMES, candidate_state=state(weight="1", bias="7"), comparisons=(WRONG,)
    )
    refused = weighed(Weighing(), undrawn, Weights.DRAWN)
    (failed,) = (check for check in refused if check.outcome is Outcome.FAILED)
    assert failed.status is Status.WRONG_VALUES
    assert failed.evidence.startswith("b left out")
    follows = Weighing()
    weighed(follows, OTHER_NAMES, Weights.LOADED)
    (skipped,) = weighed(follows, undrawn, Weights.DRAWN)
    assert skipped.outcome is Outcome.SKIPPED
    right = weighed(Weighing(), replace(undrawn, comparisons=GOOD.comparisons), Weights.DRAWN)
    assert all(check.outcome is Outcome.PASSED for check in right)
