"""A verdict and a measurement as terminal text: the one thing to fix comes first."""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernelwright.bench.measurement import Measurement
from kernelwright.report.advice import NEXT_STEPS
from kernelwright.verify.verdict import FILES, Outcome, Verdict


def verdict_lines(verdict: Verdict, *files: Path) -> Iterator[str]:
    """The conclusion, what decided it, warnings, and how many checks held.

    `files`: problem and candidate, for the command that runs a case again.
    """
    where = "the emulator" if verdict.target == "cpu" else "the GPU"
    sizes = ", ".join(f"{name} = {value}" for name, value in verdict.sizes.items())
    at_sizes = f" at sizes {sizes}" if sizes else ""
    yield f"verdict     {verdict.status.value}, on {where}{at_sizes}"
    yield f"            {verdict.summary}"
    for number, check in enumerate(verdict.failures):
        # The first may well explain the others.
        yield f"{'also' if number else 'fix first':12}{check.name}"
        if number:
            yield f"            {check.evidence}"
        elif check.reproduce:
            names = shlex.join(map(str, files)) or FILES
            yield f"            {check.reproduce.replace(FILES, names)}"
    yield f"next        {NEXT_STEPS[verdict.status]}"
    for text, cases in _warnings(verdict):
        times = f" (and in {cases - 1} more cases)" if cases > 1 else ""
        yield f"warning     {text}{times}"
    passed = sum(check.outcome is Outcome.PASSED for check in verdict.checks)
    skipped = sum(check.outcome is Outcome.SKIPPED for check in verdict.checks)
    yield (
        f"checks      {passed} passed, {skipped} could not be run; "
        f"built in {verdict.build_seconds:.1f} s"
    )


def _warnings(verdict: Verdict) -> Iterator[tuple[str, int]]:
    """Each warning once, with the number of cases that gave one of its name."""
    cases = Counter(check.name if check.case else check for check in verdict.warnings)
    shown: set[object] = set()
    for check in verdict.warnings:
        key = check.name if check.case else check
        if key not in shown:
            shown.add(key)
            yield f"{check.name}: {check.evidence}", cases[key]


def measurement_lines(measurement: Measurement) -> Iterator[str]:
    """Times with their baselines and intervals, and the share of what the card can do."""
    if measurement.note:
        yield f"speed       {measurement.note}"
        if measurement.floor_ms is not None:
            floor = f"{measurement.floor_ms:.3g} ms on {measurement.machine}"
            yield f"            modelled floor {floor}"
        return
    assert measurement.candidate is not None
    own = measurement.candidate
    yield f"speed       {own.device_ms:.4f} ms (host {own.host_ms:.4f} ms, {own.samples} samples)"
    for baseline in measurement.baselines:
        speedup = measurement.speedup_over(baseline.name)
        assert speedup is not None
        interval = f"[{speedup.device.low:.3f}, {speedup.device.high:.3f}]"
        yield (
            f"            {speedup.device.value:.2f}x over {baseline.name} "
            f"({baseline.device_ms:.4f} ms), 95 % interval {interval}"
        )
    for name, why in measurement.lost.items():
        yield f"            {name} not measured: {why}"
    if measurement.share_of_floor is not None:
        yield (
            f"            {measurement.share_of_floor:.0%} of the modelled floor "
            f"({measurement.floor_ms:.4f} ms on {measurement.machine})"
        )
    if measurement.share_of_copy is not None and measurement.copy_bandwidth is not None:
        yield (
            f"            {measurement.share_of_copy:.0%} of a copy of as many bytes "
            f"({measurement.copy_bandwidth / 1e12:.2f} TB/s in the same run)"
        )
    if measurement.environment is not None:
        env = measurement.environment
        yield f"            {env.card}, torch {env.torch}, CUDA {env.cuda}, driver {env.driver}"


def headline(verdict: Verdict, measurement: Measurement) -> tuple[str, ...]:
    """A few lines for the emitted file itself: what was verified, where, and how fast it was."""
    where = "the emulator" if verdict.target == "cpu" else "the GPU"
    sizes = ", ".join(f"{name} = {value}" for name, value in verdict.sizes.items())
    lines = [f"Verdict: {verdict.status.value}, on {where}{f' at {sizes}' if sizes else ''}."]
    if measurement.note:
        lines.append(f"Speed: {measurement.note}.")
    else:
        assert measurement.candidate is not None and measurement.environment is not None
        env = measurement.environment
        lines.append(f"Measured on {env.card}, torch {env.torch}, CUDA {env.cuda}, {env.date}:")
        lines.append(f"  {measurement.candidate.device_ms:.4f} ms")
        for item in measurement.speedups:
            interval = f"[{item.device.low:.3f}, {item.device.high:.3f}]"
            lines.append(f"  {item.device.value:.2f}x {interval} over {item.baseline}")
    return tuple(lines)
