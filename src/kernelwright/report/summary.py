"""Many rows in a few numbers: how many are verified, fast_p, geometric means.

fast_p is KernelBench's: the share of all problems that are verified and more than p times as fast
as the baseline (arXiv:2502.10517, section 3.3). fast_0 is the share of those verified.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernelwright.report.row import BEST, Row

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0)
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FastP:
    """The share of all problems verified and more than `p` times as fast."""

    p: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """All problems against one baseline."""

    baseline: str
    """A baseline's name, or `BEST`."""
    measured: int
    """Verified problems that were timed against it."""
    faster: int
    """Those of them whose interval lies above 1."""
    slower: int
    """Those of them whose interval lies below 1."""
    geomean: float | None
    """Geometric mean of the speedups of all that were measured; None without any."""
    fast: tuple[FastP, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The problems of one folder, or all of them."""

    name: str
    problems: int
    verified: int
    not_drop_in: int
    """Verified ones that cannot be given other weights as the reference can."""
    algebraic: int
    """Verified ones with a rewrite that computes something else in the same words of algebra."""
    left_to_pytorch: int
    """Verified ones that leave at least one call to PyTorch."""
    share_of_floor: float | None
    """Median of those measured."""
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole run: everything together first, then level by level."""

    levels: tuple[Level, ...]
    endings: tuple[tuple[str, int], ...]
    """How many problems ended with each status, the most frequent first."""

    @property
    def all(self) -> Level:
        """Everything together."""
        return self.levels[0]


def summarise(rows: Sequence[Row]) -> Summary:
    """The summary of rows, one for each problem."""
    names = sorted({row.level for row in rows})
    levels = [_level(ALL, rows)]
    if len(names) > 1:
        levels += [_level(name, [row for row in rows if row.level == name]) for name in names]
    statuses = [row.status for row in rows]
    endings = sorted(
        ((status, statuses.count(status)) for status in set(statuses)),
        key=lambda item: (-item[1], item[0]),
    )
    return Summary(levels=tuple(levels), endings=tuple(endings))


def baselines_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Names of all baselines that anything was timed against, in the order they were asked for."""
    names = dict.fromkeys(it.baseline for row in rows for it in row.speedups)
    return tuple(names)


def _level(name: str, rows: Sequence[Row]) -> Level:
    verified = [row for row in rows if row.verified]
    shares = sorted(row.share_of_floor for row in verified if row.share_of_floor is not None)
    names = baselines_of(verified)
    return Level(
        name=name,
        problems=len(rows),
        verified=len(verified),
        not_drop_in=sum(row.not_drop_in for row in verified),
        algebraic=sum(bool(row.algebraic) for row in verified),
        left_to_pytorch=sum(bool(row.left_to_pytorch) for row in verified),
        share_of_floor=shares[len(shares) // 2] if shares else None,
        against=tuple(_against(name, rows) for name in (*names, *((BEST,) if names else ()))),
    )


def _against(baseline: str, rows: Sequence[Row]) -> Against:
    found = [row.speedup(baseline) for row in rows if row.verified]
    intervals = [it.device for it in found if it is not None]
    values = [interval.value for interval in intervals]
    return Against(
        baseline=baseline,
        measured=len(values),
        faster=sum(interval.low > 1.0 for interval in intervals),
        slower=sum(interval.high < 1.0 for interval in intervals),
        geomean=geomean(values),
        fast=tuple(FastP(p=p, share=_share(p, values, rows)) for p in THRESHOLDS),
    )


def _share(p: float, speedups: Sequence[float], rows: Sequence[Row]) -> float:
    if p == 0.0:
        return sum(row.verified for row in rows) / len(rows)
    return sum(value > p for value in speedups) / len(rows)


def geomean(values: Sequence[float]) -> float | None:
    """exp of the mean of logarithms; None of nothing."""
    if not values:
        return None
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def apart(level: Level) -> str:
    """How many of those verified are no drop-in, for a list; empty for none."""
    return f"{level.not_drop_in} of them not drop-in, " if level.not_drop_in else ""


def summary_lines(summary: Summary) -> Iterator[str]:
    """The summary as text for a terminal."""
    for level in summary.levels:
        yield (
            f"{level.name or '.':10}  {level.verified} of {level.problems} verified, "
            f"{apart(level)}{level.algebraic} algebraic, "
            f"{level.left_to_pytorch} leave calls to PyTorch"
        )
        if level.share_of_floor is not None:
            yield f"            median share of floor {level.share_of_floor:.0%}"
        for it in level.against:
            fast = "  ".join(f"fast_{entry.p:g} {entry.share:.0%}" for entry in it.fast)
            mean = "" if it.geomean is None else f"{it.geomean:.3f}x geomean over "
            yield f"            {mean}{it.baseline} ({it.measured} measured): {fast}"
    yield "ended       " + ", ".join(f"{count} {status}" for status, count in summary.endings)
