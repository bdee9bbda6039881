"""The page about the verdict describes what is printed."""

import json
from typing import Any

import pytest

from kernelwright.bench.measurement import NO_GPU, not_measured
from kernelwright.bench.roofline import Floor
from kernelwright.machine import H200
from kernelwright.report.schema import judgement_schema, render_verdict_page
from kernelwright.verify.verdict import Check, Outcome, Status, Verdict, conclude


def check(value: Any, schema: dict[str, Any], path: str = "$") -> None:
    """As much of a validator as these schemas need."""
    if "anyOf" in schema:
        failures = []
        for choice in schema["anyOf"]:
            try:
                return check(value, choice, path)
            except AssertionError as error:
                failures.append(str(error))
        raise AssertionError("; ".join(failures))
    if "enum" in schema:
        assert value in schema["enum"], f"{path} is {value!r}"
        return None
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "null": type(None),
    }
    assert isinstance(value, kinds[schema["type"]]), f"{path} is {value!r}"
    for name in schema.get("required", ()):
        assert name in value, f"{path} has no {name}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, item in value.items():
            rest = schema.get("additionalProperties")
            assert name in known or rest, f"{path} has {name}, which is not described"
            check(item, known.get(name, rest), f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            check(item, schema["items"], f"{path}[{number}]")
    return None


def verdict() -> Verdict:
    failed = Check(
        name="values", outcome=Outcome.FAILED, evidence="off", status=Status.RACE, case="seed=1"
    )
    return conclude(
        (failed, Check(name="source", outcome=Outcome.WARNING, evidence="odd")),
        target="cpu",
        sizes={"N": 3},
        build_seconds=1.5,
    )


def printed(verdict: Verdict) -> Any:
    untimed = not_measured(NO_GPU, Floor(bytes=428, flops=0, arithmetic="fp32_simt"), H200)
    plain = {"verdict": verdict.to_json(), "measurement": untimed.to_json()}
    return json.loads(json.dumps(plain, allow_nan=False))


def test_what_is_printed_fits_the_schema() -> None:
    check(printed(verdict()), judgement_schema())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain["verdict"].pop("status"),
        lambda plain: plain["verdict"].update(status="fine"),
        lambda plain: plain["verdict"].update(more=1),
        lambda plain: plain["verdict"]["checks"][0].pop("reproduce"),
        lambda plain: plain["verdict"]["checks"][0].update(evidence=3),
        lambda plain: plain["measurement"].pop("note"),
    ],
)
def test_what_is_not_printed_does_not_fit(spoil: Any) -> None:
    plain = printed(verdict())
    spoil(plain)
    with pytest.raises(AssertionError):
        check(plain, judgement_schema())


def test_the_page_names_every_status_and_its_exit_code() -> None:
    page = render_verdict_page()
    for status in Status:
        assert f"| `{status.name}` | {status.value} | {int(status.exit_code)} |" in page
