"""The numbers over many rows, checked by hand."""

from dataclasses import replace

import pytest

from kernelwright.bench.measurement import Speedup
from kernelwright.bench.statistics import Interval
from kernelwright.report.row import BEST, Ending, Row, read_row
from kernelwright.report.summary import Against, geomean, summarise, summary_lines
from kernelwright.verify.verdict import Status


def interval(value: float) -> Interval:
    return Interval(value=value, low=value * 0.9, high=value * 1.1)


def row(name: str, *, eager: float = 0.0, compiled: float = 0.0, verified: bool = True) -> Row:
    values = {"eager": eager, "torch.compile": compiled}
    speedups = tuple(
        Speedup(baseline=baseline, device=interval(value), host=interval(value))
        for baseline, value in values.items()
        if value
    )
    return Row(
        problem=name,
        level=name.rpartition("/")[0],
        key="",
        ending=Ending.JUDGED,
        status="verified, faster" if verified else "wrong values",
        verified=verified,
        summary="",
        speedups=speedups,
        best_baseline="torch.compile" if compiled else "eager" if eager else None,
        algebraic=("diagonal",) if name.endswith("diag") else (),
    )


ROWS = [
    row("a/1", eager=4.0, compiled=2.0),
    row("a/2_diag", eager=1.0, compiled=0.5),
    row("b/3", eager=16.0),
    row("b/4", eager=9.0, compiled=9.0, verified=False),
    row("b/5"),
]


def against(name: str) -> Against:
    return next(it for it in summarise(ROWS).all.against if it.baseline == name)


def test_counts() -> None:
    summary = summarise(ROWS)
    assert [level.name for level in summary.levels] == ["all", "a", "b"]
    assert (summary.all.problems, summary.all.verified, summary.all.algebraic) == (5, 4, 1)
    assert summary.endings == (("verified, faster", 4), ("wrong values", 1))


def test_what_is_wrong_counts_as_slow_and_in_no_mean() -> None:
    eager = against("eager")
    assert eager.measured == 3
    assert eager.geomean == pytest.approx(4.0)  # of 4, 1 and 16
    shares = {entry.p: entry.share for entry in eager.fast}
    assert shares == {0.0: 0.8, 0.5: 0.6, 0.8: 0.6, 1.0: 0.4, 1.5: 0.4, 2.0: 0.4, 5.0: 0.2}


def test_the_best_baseline_is_each_problems_own() -> None:
    best = against(BEST)
    assert best.measured == 3
    assert best.geomean == pytest.approx((2.0 * 0.5 * 16.0) ** (1 / 3))
    assert (best.faster, best.slower) == (2, 1)


def test_nothing_measured_has_no_means() -> None:
    summary = summarise([row("1"), row("2", verified=False)])
    assert summary.all.against == ()
    assert summary.all.verified == 1
    assert geomean([]) is None
    assert geomean([2.0, 0.5]) == pytest.approx(1.0)


def test_the_text_names_every_baseline_and_level() -> None:
    text = "\n".join(summary_lines(summarise(ROWS)))
    assert "not drop-in" not in text
    converted = replace(ROWS[0], status=Status.NOT_DROP_IN_FASTER.value)
    (told, *_) = summary_lines(summarise([converted, *ROWS[1:]]))
    assert "4 of 5 verified, 1 of them not drop-in, 1 algebraic" in told
    assert "4 of 5 verified, 1 algebraic" in text
    assert "4.000x geomean over eager (3 measured)" in text
    assert "fast_5 20%" in text
    assert text.count("geomean over the best") == 3


def test_a_row_survives_json() -> None:
    assert read_row(ROWS[0].to_json()) == ROWS[0]


def test_rows_of_earlier_runs_are_read() -> None:
    earlier = ROWS[0].to_json()
    del earlier["spent"]
    for speedup in earlier["speedups"]:
        del speedup["undisturbed"]
    assert earlier["speedups"]
    assert read_row(earlier) == ROWS[0]
