"""Timed results against the reference's: as near to each other as they were when verified.

A timed call has no float64 oracle: that would take as long as everything else together. But the
verification has measured how far candidate and reference lie from it, and so how far apart the two
can be; a timed result that is further off was not computed as the verified ones were.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.verify.distributions import Distribution
from kernelwright.verify.tolerance import ErrorMetrics

_MULTIPLIER = 4.0
"""Times the distance seen at most: other inputs are no further off than that."""
_FLOOR = 8.0
_WORST_FLOOR = 32.0
"""Times epsilon, for results that were the same to the last bit."""


@dataclass(slots=True)
class _Distance:
    mean: float = 0.0
    worst: float = 0.0
    mismatches: float = 0.0
    """Share of the elements."""


class Agreement:
    """What verified cases showed about how near two results are."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Distribution, str], _Distance] = {}

    def learn(self, distribution: Distribution, comparisons: Iterable[ErrorMetrics]) -> None:
        """Take the distances of one verified case."""
        for metrics in comparisons:
            seen = self._seen.setdefault((distribution, metrics.name), _Distance())
            scale = metrics.rms or 1.0
            mean = (metrics.candidate_rmse + metrics.reference_rmse) / scale
            worst = metrics.candidate_worst + metrics.reference_worst
            seen.mean, seen.worst = max(seen.mean, mean), max(seen.worst, worst)
            seen.mismatches = max(seen.mismatches, metrics.mismatches / max(metrics.count, 1))

    def objection(self, distribution: Distribution, metrics: ErrorMetrics) -> str:
        """Why a timed result (measured against the reference's) is wrong; empty if it is right."""
        seen = self._seen.get((distribution, metrics.name), _Distance())
        share = metrics.mismatches / max(metrics.count, 1)
        if share > _MULTIPLIER * seen.mismatches:
            return f"{metrics.name} has {metrics.mismatches} of {metrics.count} elements wrong"
        mean = metrics.candidate_rmse / (metrics.rms or 1.0)
        allowed = _MULTIPLIER * seen.mean + _FLOOR * metrics.epsilon
        if mean > allowed:
            return (
                f"{metrics.name} is {mean:.2e} of its RMS away from the reference's, "
                f"{allowed:.2e} is what verified results allow"
            )
        allowed = _MULTIPLIER * seen.worst + _WORST_FLOOR * metrics.epsilon
        if metrics.candidate_worst > allowed:
            return (
                f"{metrics.name}{list(metrics.worst_index)} is {metrics.candidate_value:.9g}, the "
                f"reference's {metrics.oracle_value:.9g}"
            )
        return ""
