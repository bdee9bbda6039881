"""Medians and bootstrap intervals of interleaved samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Samples = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""Rounds by samples."""

Indices = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""Resamples by rounds: which rounds a resample has."""
Medians = np.ndarray[tuple[int], np.dtype[np.float64]]
"""One for each resample."""

_RESAMPLES = 2000
_NORMAL_95 = 1.96
"""Standard deviations to each side that hold 95 % of a normal distribution."""
_SEED = 20120713
"""Fixed, so that the same samples give the same interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def median(rounds: Sequence[Sequence[float]]) -> float:
    """Median of all samples of all rounds."""
    return float(np.median(np.concatenate([np.asarray(samples) for samples in rounds])))


def quickest(rounds: Sequence[Sequence[float]]) -> float:
    """What a tenth of all samples of all rounds stays below."""
    return float(np.quantile(np.concatenate([np.asarray(samples) for samples in rounds]), 0.1))


def median_interval(rounds: Sequence[Sequence[float]]) -> Interval:
    """The median of all samples with the 95 % interval that their order gives (no distribution).

    The k-th smallest of n is below the median with the binomial's probability; its quantiles are
    taken from the normal one, 0.98 * sqrt(n) ranks to each side.
    """
    samples = np.sort(np.concatenate([np.asarray(batch) for batch in rounds]))
    half = _NORMAL_95 / 2 * np.sqrt(len(samples))
    low = max(0, int(np.floor((len(samples) - 1) / 2 - half)))
    high = min(len(samples) - 1, int(np.ceil((len(samples) - 1) / 2 + half)))
    return Interval(
        value=float(np.median(samples)), low=float(samples[low]), high=float(samples[high])
    )


def ratio_of_medians(
    numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]]
) -> Interval:
    """median(numerator) / median(denominator) with a 95 % bootstrap interval.

    The two were measured in turns: round i of one right before round i of the other. Rounds are
    resampled together, so that what a changing clock does to both is not taken for noise of the
    ratio, and samples within a round are resampled each on their own. Rounds may be of unequal
    length; where one has no samples, those of the other are left out.
    """
    if len(numerator) != len(denominator) or not numerator:
        raise ValueError(f"{len(numerator)} rounds against {len(denominator)}")
    pairs = [
        (one, other) for one, other in zip(numerator, denominator, strict=True) if one and other
    ]
    top, bottom = (_Rounds(rounds) for rounds in zip(*pairs, strict=True))
    random = np.random.default_rng(_SEED)
    which = random.integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    ratios = top.resampled_medians(which, random) / bottom.resampled_medians(which, random)
    low, high = np.percentile(ratios, [2.5, 97.5])
    value = median(top.rounds) / median(bottom.rounds)
    return Interval(value=value, low=float(low), high=float(high))


class _Rounds:
    """Rounds of samples, padded to one length."""

    def __init__(self, rounds: Sequence[Sequence[float]]) -> None:
        self.rounds = rounds
        self._counts = np.asarray([len(samples) for samples in rounds])
        self._samples: Samples = np.zeros((len(rounds), int(self._counts.max())))
        for row, samples in zip(self._samples, rounds, strict=True):
            row[: len(samples)] = samples

    def resampled_medians(self, which: Indices, random: np.random.Generator) -> Medians:
        """For each row of `which` the median of those rounds' samples, each drawn from its own."""
        samples, counts = self._samples[which], self._counts[which]
        each = counts[..., np.newaxis]
        picks = (random.random(samples.shape) * each).astype(np.int64)
        drawn = np.take_along_axis(samples, picks, axis=-1)
        drawn[np.broadcast_to(np.arange(samples.shape[-1]) >= each, drawn.shape)] = np.inf
        ordered = np.sort(drawn.reshape(len(which), -1), axis=1)  # what is no sample comes last
        total = counts.sum(axis=1)
        middle = np.stack([(total - 1) // 2, total // 2], axis=1)
        medians: Medians = np.take_along_axis(ordered, middle, axis=1).mean(axis=1)
        return medians
