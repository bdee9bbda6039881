"""Records to JSON and back; nothing that does not fit gets in."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import pytest

from kernelwright.machine import Machine, modelled_machine
from kernelwright.verify.cases import Case, Distribution
from kernelwright.verify.observation import Fault, FaultKind, RunFacts, TensorFacts
from kernelwright.verify.records import RecordError, from_plain, to_plain

FACTS = RunFacts(
    structure="T",
    outputs=(
        TensorFacts(
            name="output",
            dtype="torch.float32",
            shape=(2, 3),
            strides=(3, 1),
            place="the device",
            fingerprint="00",
        ),
    ),
    inputs=(),
    changed=("input[0]",),
    aliases=(("output", "input[0]"),),
    seconds=0.5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    value: RunFacts | Fault | None
    number: float = 0.0


@pytest.mark.parametrize(
    "record",
    [
        Either(value=FACTS),
        Either(value=Fault(kind=FaultKind.HANG, message="late")),
        Either(value=None, number=math.inf),
    ],
)
def test_records_survive_json(record: Either) -> None:
    assert from_plain(Either, json.loads(json.dumps(to_plain(record), allow_nan=False))) == record


def test_cases_survive_json() -> None:
    case = Case(seed=2, distribution=Distribution.NORMAL, sizes=(("M", 3),))
    assert from_plain(Case, json.loads(json.dumps(to_plain(case)))) == case


@pytest.mark.parametrize(
    "change",
    [
        {"structure": 3},
        {"structure": None},
        {"changed": "input[0]"},
        {"changed": [1]},
        {"aliases": [["output"]]},
        {"outputs": [{}]},
        {"seconds": "soon"},
        {"seconds": True},
        {"extra": 1},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        from_plain(RunFacts, {**to_plain(FACTS), **change})


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(RecordError):
        from_plain(RunFacts, value)


def test_what_has_no_plain_form() -> None:
    with pytest.raises(RecordError):
        to_plain(object())


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    seconds: Mapping[str, float]


def test_a_mapping_comes_back_and_each_of_its_values_is_read() -> None:
    times = Times(seconds={"build": 1.5, "never": math.inf})
    assert from_plain(Times, json.loads(json.dumps(to_plain(times)))) == times
    for wrong in ([], {"build": "soon"}, {"build": [1.0]}):
        with pytest.raises(RecordError):
            from_plain(Times, {"seconds": wrong})


def test_the_card_survives_json() -> None:
    """Whose tables have tuples for keys: a child says what card it has."""
    machine = modelled_machine()
    again = from_plain(Machine, json.loads(json.dumps(to_plain(machine))))
    # A card is equal to itself alone, so that rankings can be kept by it: its fields are compared.
    names = [field.name for field in fields(Machine)]
    assert [getattr(again, name) for name in names] == [getattr(machine, name) for name in names]
    with pytest.raises(RecordError):
        from_plain(Machine, {**to_plain(machine), "warpgroups": [[1]]})
