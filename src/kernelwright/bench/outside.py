"""A candidate's own events held against the clock of another process.

The two differ by the flush in front of a call and by how long words and interrupts take, which the
reference, measured in the same way by code that nobody tampers with, shows. What a candidate's
calls take beyond that was outside its events: on a stream that nobody joined, or in events that
lie. Or nobody had a core to see the end of the call on: a busy machine makes the clock late, by
milliseconds, and none of that is the candidate's doing. So calls in which a thread waited for a
core do not count, and what is left has to be beyond what the reference shows in nearly every call
before anybody is accused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from kernelwright.bench.statistics import median
from kernelwright.bench.timing import Rounds

Times = np.ndarray[tuple[int], np.dtype[np.float64]]
"""One for each call, milliseconds."""

_ON_TIME_MS = 0.02
"""Waiting for a core in one call for no longer than this is being on time."""
_FEWEST = 10
"""Calls on time from which on anything is said."""
_FEW = 0.1
"""Share of the calls that may be anything."""
_UNEXPLAINED_MS = 0.05
"""More than this beyond the reference's difference, and more than this share of the span, is no
noise: on an H200 the difference is 0.20 ms, within 0.006 ms from call to call."""
_UNEXPLAINED_SHARE = 0.3
_NOISE_MS = 0.01
"""Differences up to this, or this share of the span, are noise."""
_NOISE_SHARE = 0.03
_WAITING_MS = 0.1
"""What a call that waits for the device itself (a copy from the host, `.item()`) takes besides: its
end is on the host, which then copies the results. Seen on an H200: 0.30 ms in place of 0.20."""
_STEADY = 2.0
"""Times that noise that half of the reference's calls may lie apart on a quiet machine."""


class Standing(Enum):
    """What becomes of a candidate's own times."""

    AGREES = "agrees"
    """They are believed: the other clock says the same."""
    LONGER = "longer"
    """The other clock's are believed in their place."""
    PARTLY = "partly"
    """The machine is busy: they are believed of calls of which the other clock says the same."""
    HIDDEN = "hidden"
    """Nearly every call has work outside the events."""
    UNKNOWN = "unknown"
    """The machine was too busy for the other clock to say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the calls of a candidate take beyond its events, in milliseconds."""

    standing: Standing
    usual: float
    """By which the clocks differ for the reference; medians of the calls that were on time."""
    beyond: float
    """By which they differ more for the candidate."""
    certain: float
    """That difference between all but a tenth of its calls and of the reference's."""
    on_time: int
    """Calls in which nobody waited for a core, of the one that had fewer such."""
    calls: int
    """How many calls of each."""


def look_outside(candidate: Rounds, reference: Rounds) -> Outside | None:
    """How the candidate's events stand to the other clock; None where there was none."""
    if not any(candidate.outside_ms) or not any(reference.outside_ms):
        return None
    span = median(candidate.device_ms)
    own, others = _on_time(candidate), _on_time(reference)
    on_time = min(len(own), len(others))
    if on_time < _FEWEST:
        own, others = _differences(candidate), _differences(reference)
    if _waits(candidate) and not _waits(reference):
        others = others + _WAITING_MS
    low, middle, high = np.quantile(others, [0.25, 0.5, 0.75])
    is_steady = on_time >= _FEWEST and high - low <= _STEADY * _noise(span)
    # Being late only adds: on a busy machine the usual is what is seen when nobody is.
    usual = float(middle if is_steady else np.quantile(others, _FEW))
    beyond = float(np.median(own)) - usual
    certain = float(np.quantile(own, _FEW) - np.quantile(others, 1 - _FEW))
    if beyond <= _noise(span):
        standing = Standing.AGREES
    elif on_time >= _FEWEST and certain > max(_UNEXPLAINED_MS, _UNEXPLAINED_SHARE * span):
        standing = Standing.HIDDEN
    elif is_steady:  # more than half of the calls are not late by chance
        standing = Standing.LONGER
    else:
        confirmed = _differences(candidate) <= usual + _noise(span)
        standing = Standing.PARTLY if confirmed.sum() >= _FEWEST else Standing.UNKNOWN
    return Outside(
        standing=standing,
        usual=usual,
        beyond=beyond,
        certain=certain,
        on_time=on_time,
        calls=len(_flat(candidate.outside_ms)),
    )


def corrected(candidate: Rounds, outside: Outside) -> Rounds:
    """The candidate's rounds with the times that count."""
    made = Rounds(**{name: getattr(candidate, name) for name in candidate.__slots__})
    match outside.standing:
        case Standing.PARTLY:
            made.device_ms = _confirmed(candidate, outside)
        case Standing.LONGER | Standing.HIDDEN:
            made.device_ms = _as_seen(candidate, outside)
    return made


def _confirmed(candidate: Rounds, outside: Outside) -> list[tuple[float, ...]]:
    """Its spans where the other clock says the same: rounds of unequal length."""
    most = outside.usual + _noise(median(candidate.device_ms))
    return [
        tuple(span for span, seen in zip(spans, seen_ms, strict=True) if seen - span <= most)
        for spans, seen_ms in zip(candidate.device_ms, candidate.outside_ms, strict=True)
    ]


def _as_seen(candidate: Rounds, outside: Outside) -> list[tuple[float, ...]]:
    """Its spans as the other clock has them where those are longer."""
    return [
        tuple(
            max(seen - outside.usual, span) if is_on_time else span + outside.beyond
            for span, seen, is_on_time in zip(spans, seen_ms, _punctual(waited), strict=True)
        )
        for spans, seen_ms, waited in zip(
            candidate.device_ms, candidate.outside_ms, candidate.waited_ms, strict=True
        )
    ]


def _waits(rounds: Rounds) -> bool:
    """Whether most calls were not launched to their end before the device began."""
    return rounds.late * 2 > len(_flat(rounds.device_ms))


def _noise(span: float) -> float:
    return max(_NOISE_MS, _NOISE_SHARE * span)


def _differences(rounds: Rounds) -> Times:
    """By how much the clocks differ in each call."""
    return _flat(rounds.outside_ms) - _flat(rounds.device_ms)


def _on_time(rounds: Rounds) -> Times:
    """Those times for the calls in which nobody waited for a core."""
    kept: Times = _differences(rounds)[np.asarray(_punctual(_flat(rounds.waited_ms)))]
    return kept


def _punctual(waited: Iterable[float]) -> list[bool]:
    return [float(it) <= _ON_TIME_MS for it in waited]


def _flat(batches: Sequence[Sequence[float]]) -> Times:
    return np.concatenate([np.asarray(batch, dtype=np.float64) for batch in batches])
