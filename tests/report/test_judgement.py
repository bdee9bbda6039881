"""Verdicts and measurements as text."""

from dataclasses import replace
from pathlib import Path

from kernelwright.bench.measurement import NO_GPU, not_measured
from kernelwright.bench.roofline import Floor
from kernelwright.machine import H200
from kernelwright.report.advice import NEXT_STEPS
from kernelwright.report.judgement import headline, measurement_lines, verdict_lines
from kernelwright.verify.verdict import Check, Outcome, Status, conclude

RACE = Check(
    name="kernel checks", outcome=Outcome.FAILED, evidence="race at line 12", status=Status.RACE
)
VALUES = Check(
    name="values", outcome=Outcome.FAILED, evidence="off by one", status=Status.WRONG_VALUES
)
STRIDES = Check(name="strides", outcome=Outcome.WARNING, evidence="transposed")
PASSED = Check(name="values", outcome=Outcome.PASSED, evidence="the same", case="seed=0")
UNTIMED = not_measured(NO_GPU, Floor(bytes=428, flops=0, arithmetic="fp32_simt"), H200)


def test_one_thing_is_to_be_fixed_first() -> None:
    verdict = conclude(
        (PASSED, RACE, VALUES, STRIDES), target="cpu", sizes={"N": 33}, build_seconds=1.0
    )
    lines = list(verdict_lines(verdict))
    assert lines[0] == "verdict     race, on the emulator at sizes N = 33"
    first = lines.index("fix first   kernel checks")
    assert lines[1].strip() == "race at line 12"
    assert lines[first + 1 : first + 4] == [
        "also        values",
        "            off by one",
        "next        Put a barrier between the two accesses.",
    ]
    assert "warning     strides: transposed" in lines
    assert lines[-1].startswith("checks      1 passed")


def test_the_first_failure_comes_with_the_command_that_shows_it_again() -> None:
    case = "seed=1 distribution=normal layout=as-made weights=made"
    failed = replace(VALUES, case=case)
    verdict = conclude((failed,), target="cuda", sizes={}, build_seconds=1.0)
    lines = list(verdict_lines(verdict))
    command = f"kernelwright judge MODEL MODEL_NEW --case '{case}'"
    named = command.replace("MODEL MODEL_NEW", "model.py 'new 2.py'")
    assert f"            {named}" in verdict_lines(verdict, Path("model.py"), Path("new 2.py"))
    assert lines[lines.index("fix first   values") + 1].strip() == command


def test_a_warning_of_many_cases_is_printed_once() -> None:
    warnings = tuple(replace(STRIDES, case=f"seed={seed}") for seed in range(3))
    others = tuple(replace(STRIDES, name="source", evidence=word) for word in "ab")
    verdict = conclude((PASSED, *warnings, *others), target="cpu", sizes={}, build_seconds=1.0)
    assert [line for line in verdict_lines(verdict) if line.startswith("warning")] == [
        "warning     strides: transposed (and in 2 more cases)",
        "warning     source: a",
        "warning     source: b",
    ]


def test_every_status_has_advice() -> None:
    assert set(NEXT_STEPS) == set(Status)


def test_without_a_gpu_the_floor_is_modelled_and_speed_is_not_measured() -> None:
    lines = list(measurement_lines(UNTIMED))
    assert lines == [
        "speed       not measured: no GPU",
        "            modelled floor 1e-07 ms on NVIDIA H200",
    ]


def test_the_headline_of_an_emitted_file() -> None:
    verdict = conclude((PASSED,), target="cpu", sizes={"N": 33}, build_seconds=1.0)
    assert headline(verdict, UNTIMED) == (
        "Verdict: verified, speed not measured, on the emulator at N = 33.",
        "Speed: not measured: no GPU.",
    )
