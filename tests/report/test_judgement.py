"""Verdicts and measurements as text."""

from kernelwright.bench.measurement import NO_GPU, not_measured
from kernelwright.bench.roofline import Floor
from kernelwright.machine import H200
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
    assert [line for line in lines if line.startswith("fix first")] == ["fix first   kernel checks"]
    assert "also        values" in lines
    assert "warning     strides: transposed" in lines
    assert lines[-1].startswith("checks      1 passed")


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
