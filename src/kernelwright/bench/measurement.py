"""What timing a candidate found: every number with what it was measured against and on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.bench.roofline import Floor, share_of_floor
from kernelwright.bench.statistics import Interval, median, quickest, ratio_of_medians
from kernelwright.bench.timing import PROCESS_SCATTER_MS, Rounds
from kernelwright.machine import Machine
from kernelwright.verify.records import to_plain

NO_GPU = "not measured: no GPU"

RESOLUTION = 0.01
"""Speedups below 1 % are not told apart: two processes that run the same code differ by less. On an
H200 50 judgements of a reference against itself had medians up to 0.6 % apart."""
_ONE_IN_A_THOUSAND = 3.09
"""Standard deviations that a thousandth of a normal distribution lies beyond, on one side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The times of one contestant."""

    name: str
    """"candidate", "eager", "torch.compile"."""
    device_ms: float
    """Median device span, milliseconds."""
    host_ms: float
    """Median time from the call to the end of synchronisation on an idle device."""
    samples: int
    """Device samples behind the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """The candidate against one baseline."""

    baseline: str
    device: Interval
    """Baseline's median device span over the candidate's: the 95 % interval of their samples, wider
    by what one in a thousand pairs of processes is apart that run the same code."""
    host: Interval
    """Baseline's median host time over the candidate's, with its 95 % interval."""
    other_inputs: Interval | None = None
    """As `device`, on zero-mean inputs; None where they were not tried."""
    undisturbed: float | None = None
    """The ratio of the quickest tenths of the device spans, which others on the card leave alone:
    they make calls slower, and none quicker. None in records that lack it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the times were measured on."""

    card: str
    torch: str
    cuda: str
    driver: str
    date: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Times of the candidate and the baselines, or why there are none."""

    note: str
    """Empty when measured, else "not measured: ..."."""
    candidate: Series | None
    baselines: tuple[Series, ...]
    lost: Mapping[str, str]
    """Baselines that could not be measured, with the reason."""
    speedups: tuple[Speedup, ...]
    best_baseline: str | None
    """The fastest of the baselines that were measured."""
    floor: Floor | None
    floor_ms: float | None
    """The least time on `machine`."""
    machine: str
    """The card whose rates the floor was computed with."""
    share_of_floor: float | None
    copy_bandwidth: float | None
    """Bytes a second of a copy that moves as many bytes as the floor, measured in the same run."""
    share_of_copy: float | None
    """The candidate's bytes a second over that, for the floor's bytes."""
    environment: Environment | None

    @property
    def faster(self) -> bool:
        """Whether the interval against the best baseline lies above 1 by more than `RESOLUTION`.

        That is besides what the interval has of `PROCESS_SCATTER_MS`. The quickest calls have to be
        quicker as well: else others had the card, and one contestant more of them. A candidate that
        is slower on zero-mean inputs is not faster: it is made for its own.
        """
        if self.candidate is None:
            return False
        least = 1.0 + RESOLUTION
        against = [it for it in self.speedups if it.baseline == self.best_baseline]
        return any(
            speedup.device.low > least
            and (speedup.undisturbed is None or speedup.undisturbed > least)
            and (speedup.other_inputs is None or speedup.other_inputs.high >= 1.0)
            for speedup in against
        )

    def speedup_over(self, baseline: str) -> Speedup | None:
        """The speedup over one baseline, if it was measured."""
        return next((it for it in self.speedups if it.baseline == baseline), None)

    def to_json(self) -> dict[str, Any]:
        """The measurement as JSON values."""
        return {**to_plain(self), "faster": self.faster}


def not_measured(note: str, floor: Floor | None, machine: Machine) -> Measurement:
    """A measurement without times, with the floor that the machine model gives."""
    return Measurement(
        note=note,
        candidate=None,
        baselines=(),
        lost={},
        speedups=(),
        best_baseline=None,
        floor=floor,
        floor_ms=None if floor is None else floor.milliseconds(machine),
        machine=machine.name,
        share_of_floor=None,
        copy_bandwidth=None,
        share_of_copy=None,
        environment=None,
    )


def summarise(
    rounds: Mapping[str, Rounds],
    *,
    candidate: str,
    lost: Mapping[str, str],
    floor: Floor | None,
    machine: Machine,
    copy_bandwidth: float | None,
    environment: Environment,
) -> Measurement:
    """The measurement behind interleaved rounds; `rounds` has the candidate under its name."""
    measured = {name: it for name, it in rounds.items() if not it.lost}
    fallen = {name: _why_lost(it) for name, it in rounds.items() if it.lost}
    if candidate not in measured:
        return not_measured(f"not measured: {fallen[candidate]}", floor, machine)
    own = _series(candidate, measured[candidate])
    baselines = tuple(_series(name, it) for name, it in measured.items() if name != candidate)
    speedups = tuple(
        _speedup(series.name, measured[series.name], measured[candidate]) for series in baselines
    )
    best = min(baselines, key=lambda series: series.device_ms, default=None)
    reached = None if floor is None else floor.bytes / own.device_ms * 1e3
    return Measurement(
        note="",
        candidate=own,
        baselines=baselines,
        lost={**lost, **fallen},
        speedups=speedups,
        best_baseline=None if best is None else best.name,
        floor=floor,
        floor_ms=None if floor is None else floor.milliseconds(machine),
        machine=machine.name,
        share_of_floor=None if floor is None else share_of_floor(floor, machine, own.device_ms),
        copy_bandwidth=copy_bandwidth,
        share_of_copy=reached / copy_bandwidth if reached and copy_bandwidth else None,
        environment=environment,
    )


_LESS_ACCURATE = "its results are less accurate than allowed, so its time does not count"


def _why_lost(rounds: Rounds) -> str:
    """Why a contestant has no times, in words that say so of one that was wrong."""
    return f"{_LESS_ACCURATE}: {rounds.lost}" if rounds.wrong else rounds.lost


def _series(name: str, rounds: Rounds) -> Series:
    return Series(
        name=name,
        device_ms=median(rounds.device_ms),
        host_ms=median(rounds.host_ms),
        samples=sum(len(batch) for batch in rounds.device_ms),
    )


def _speedup(name: str, baseline: Rounds, candidate: Rounds) -> Speedup:
    # One length of batches above 0: nobody refused some of these inputs.
    tried = {len(batch) for it in (baseline, candidate) for batch in it.other_ms}
    both_tried = len(tried) == 1 and 0 not in tried and bool(candidate.other_ms)
    return Speedup(
        baseline=name,
        device=_between_processes(
            ratio_of_medians(baseline.device_ms, candidate.device_ms), baseline, candidate
        ),
        host=ratio_of_medians(baseline.host_ms, candidate.host_ms),
        other_inputs=(
            ratio_of_medians(baseline.other_ms, candidate.other_ms) if both_tried else None
        ),
        undisturbed=quickest(baseline.device_ms) / quickest(candidate.device_ms),
    )


def _between_processes(ratio: Interval, baseline: Rounds, candidate: Rounds) -> Interval:
    """The interval of a ratio where other processes of the same code would have other medians."""
    scatter = (PROCESS_SCATTER_MS / median(it.device_ms) for it in (baseline, candidate))
    share = _ONE_IN_A_THOUSAND * math.hypot(*scatter)
    return Interval(
        value=ratio.value, low=ratio.low * max(0.0, 1.0 - share), high=ratio.high * (1.0 + share)
    )
