"""What each part of the benchmark measures of a case, and how it sums its rows up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from matmul_parts import cases
from matmul_parts.accuracy import UNIT, compare
from matmul_parts.building import Emitted, Naming
from matmul_parts.cases import Case
from matmul_parts.contest import Contest, prepare
from matmul_parts.distributions import ALL, COMMON
from matmul_parts.supervising import MEASURED, Row
from matmul_parts.timing import QUICK, THOROUGH, Effort, Race, host_ms, race

_HOST_CALLS = 5
_DRAWN = ("uniform", "normal")
"""Distributions where the times are the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A case with its built file."""

    case: Case
    emitted: Emitted

    @property
    def name(self) -> str:
        """The case's."""
        return self.case.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One table."""

    cases: Callable[[int], Iterable[Case]]
    """Given how many random shapes are wanted."""
    measure: Callable[[Task], Row]
    heading: str
    line: Callable[[Row], str]
    """A measured row under the heading."""
    summarise: Callable[[Sequence[Row]], Row]
    """What all measured rows come to."""
    naming: Naming = Naming.AS_EMITTED


# --- Speed -------------------------------------------------------------------------------------


@torch.no_grad()
def measure_acceptance(task: Task) -> Row:
    """The times against what is asked for, on the problem's own inputs."""
    row, times = _race(task, prepare(task.emitted), THOROUGH)
    return row | _asked(task.case, times)


@torch.no_grad()
def measure_half(task: Task) -> Row:
    """The times against what is asked for, and the accuracy."""
    contest = prepare(task.emitted)
    row, times = _race(task, contest, THOROUGH)
    return row | _asked(task.case, times) | _accuracy(task.case, contest, _DRAWN)


@torch.no_grad()
def measure_random(task: Task) -> Row:
    """A few samples, and the accuracy."""
    contest = prepare(task.emitted)
    row, _ = _race(task, contest, QUICK)
    return row | _accuracy(task.case, contest, _DRAWN)


def _race(task: Task, contest: Contest, effort: Effort) -> tuple[Row, Race]:
    calls = {
        "library": lambda: contest.reference(*contest.inputs),
        "ours": lambda: contest.ours(*contest.inputs),
    }
    times = race(calls, effort)
    library, ours = times.median("library"), times.median("ours")
    row: Row = {
        "case": task.name,
        "status": MEASURED,
        "library_ms": library,
        "ours_ms": ours,
        "ratio": library / ours,
        "samples": len(times.device_ms["ours"]),
        "tflops": task.case.flops / ours / 1e9,
        "library_tflops": task.case.flops / library / 1e9,
        "library_host_ms": host_ms(calls["library"], _HOST_CALLS),
        "ours_host_ms": host_ms(calls["ours"], _HOST_CALLS),
        "kernels": list(task.emitted.kernels),
        "left_to_pytorch": list(task.emitted.left),
    }
    return row, times


def _asked(case: Case, times: Race) -> Row:
    interval = times.ratio("library", "ours")
    return {
        "interval": [interval.low, interval.high],
        "required": case.required,
        "stretch": case.stretch,
        "met": case.required is None or interval.value >= case.required,
        "stretch_met": case.stretch is not None and interval.value >= case.stretch,
    }


_SPEED_HEADING = (
    f"{'case':42} {'library ms':>10} {'ours ms':>9} {'ratio':>6} {'95 %':>13} "
    f"{'asked':>6} {'stretch':>7} {'TFLOP/s':>8}"
)


def _speed_line(row: Row) -> str:
    low, high = row["interval"]
    stretch = "" if row["stretch"] is None else f"{row['stretch']:.2f}"
    verdict = "stretch" if row["stretch_met"] else "met" if row["met"] else "NOT MET"
    return (
        f"{row['case']:42} {row['library_ms']:10.4f} {row['ours_ms']:9.4f} {row['ratio']:6.2f} "
        f"[{low:5.2f},{high:6.2f}] {row['required']:6.2f} {stretch:>7} {row['tflops']:8.1f} "
        f"{verdict}{_remarks(row)}"
    )


def _remarks(row: Row) -> str:
    left = " (left to PyTorch)" if row["left_to_pytorch"] else ""
    broken = f" BREAKS {', '.join(row['broken'])}" if row.get("broken") else ""
    return left + broken


def _summarise_speed(rows: Sequence[Row]) -> Row:
    return {
        "met": sum(row["met"] for row in rows),
        "not_met": [row["case"] for row in rows if not row["met"]],
        "geomean_ratio": _geomean(row["ratio"] for row in rows),
        "inaccurate": [row["case"] for row in rows if row.get("broken")],
    }


def _geomean(ratios: Iterable[float]) -> float | None:
    logarithms = np.log(list(ratios))
    return float(np.exp(logarithms.mean())) if len(logarithms) else None


_RANDOM_HEADING = (
    f"{'case':24} {'library ms':>10} {'ours ms':>9} {'ratio':>6} {'TFLOP/s':>8} {'host ratio':>10}"
)
_SLOW = 0.95


def _random_line(row: Row) -> str:
    slow = " SLOW" if row["ratio"] < _SLOW else ""
    return (
        f"{row['case']:24} {row['library_ms']:10.4f} {row['ours_ms']:9.4f} {row['ratio']:6.2f} "
        f"{row['tflops']:8.2f} {row['library_host_ms'] / row['ours_host_ms']:10.2f}"
        f"{slow}{_remarks(row)}"
    )


def _summarise_random(rows: Sequence[Row]) -> Row:
    by_ratio = sorted(rows, key=lambda row: row["ratio"])
    return {
        "geomean_ratio": _geomean(row["ratio"] for row in rows),
        "worst": [[row["case"], row["ratio"]] for row in by_ratio[:1]],
        "slow": [[row["case"], row["ratio"]] for row in by_ratio if row["ratio"] < _SLOW],
        "left_to_pytorch": sum(bool(row["left_to_pytorch"]) for row in rows),
        "inaccurate": [row["case"] for row in rows if row["broken"]],
    }


# --- Accuracy ----------------------------------------------------------------------------------


@torch.no_grad()
def measure_accuracy(task: Task) -> Row:
    """All distributions on a representative shape, the common ones on those of the speed table."""
    contest = prepare(task.emitted)
    names = ALL if task.case.required is None else COMMON
    row: Row = {
        "case": task.name,
        "status": MEASURED,
        "kernels": list(task.emitted.kernels),
        "left_to_pytorch": list(task.emitted.left),
    }
    return row | _accuracy(task.case, contest, names)


def _accuracy(case: Case, contest: Contest, names: Iterable[str]) -> Row:
    """Errors by distribution, and which clauses of the rule are broken on which."""
    comparisons = {}
    for seed, name in enumerate(names):
        contest.fill(case, ALL[name], seed)
        comparisons[name] = compare(contest.reference, contest.ours, contest.inputs)
    return {
        "accuracy": {name: found.to_json() for name, found in comparisons.items()},
        "broken": [
            f"{name}: {clause}" for name, found in comparisons.items() for clause in found.broken
        ],
    }


_ACCURACY_HEADING = (
    f"{'case':42} {'values':>6} {'uniform rms, mean':>19} {'library':>19} {'normal rms':>10} "
    f"{'library':>8} {'worst excess':>12}"
)
"""The excess is the largest error minus the library's, in units of 2^-24."""


def _accuracy_line(row: Row) -> str:
    found = row["accuracy"]
    uniform, normal = found["uniform"], found["normal"]
    rms = {who: f"{uniform[who]['rms']:.2e}, {uniform[who]['mean']:9.2e}" for who in _BOTH}
    excess = max((it["ours"]["max"] - it["library"]["max"]) / UNIT for it in found.values())
    return (
        f"{row['case']:42} {len(found):6} {rms['ours']:>19} {rms['library']:>19} "
        f"{normal['ours']['rms']:10.2e} {normal['library']['rms']:8.2e} {excess:12.2f}"
        f"{_remarks(row)}"
    )


_BOTH = ("ours", "library")


def _summarise_accuracy(rows: Sequence[Row]) -> Row:
    return {
        "comparisons": sum(len(row["accuracy"]) for row in rows),
        "broken": [f"{row['case']}, {clause}" for row in rows for clause in row["broken"]],
    }


# --- The parts ---------------------------------------------------------------------------------


def _measured_for_accuracy(_: int) -> Iterator[Case]:
    yield from cases.representative()
    yield from cases.acceptance()


PARTS: dict[str, Part] = {
    "acceptance": Part(
        cases=lambda _: cases.acceptance(),
        measure=measure_acceptance,
        heading=_SPEED_HEADING,
        line=_speed_line,
        summarise=_summarise_speed,
    ),
    "accuracy": Part(
        cases=_measured_for_accuracy,
        measure=measure_accuracy,
        heading=_ACCURACY_HEADING,
        line=_accuracy_line,
        summarise=_summarise_accuracy,
    ),
    "random": Part(
        cases=cases.random_shapes,
        measure=measure_random,
        heading=_RANDOM_HEADING,
        line=_random_line,
        summarise=_summarise_random,
        naming=Naming.SHARED,
    ),
    "half": Part(
        cases=lambda _: cases.half(),
        measure=measure_half,
        heading=_SPEED_HEADING,
        line=_speed_line,
        summarise=_summarise_speed,
    ),
}
