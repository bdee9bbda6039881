"""The numbers of a run as Markdown and as CSV: the same as on the page."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from kernelwright.report.row import Row
from kernelwright.report.run_data import RunData, changes_between
from kernelwright.report.summary import Level, apart, baselines_of, summarise

_FACTS = ("cards", "torch", "cuda", "driver", "commit", "version", "date", "command")

_FIRST_COLUMNS = (
    *("problem", "level", "status", "verified"),
    *("device_ms", "host_ms", "floor_ms", "share_of_floor"),
)
_LAST_COLUMNS = ("algebraic", "left_to_pytorch", "kernels", "seconds")


def markdown(run: RunData, old: RunData | None = None) -> str:
    """Summary, changes where there is an older run, and all problems."""
    lines = [f"# {run.name}", ""]
    lines += [f"- {name}: {_words(run.facts[name])}" for name in _FACTS if run.facts.get(name)]
    lines += ["", *_summary(run), ""]
    if old is not None:
        lines += [f"## Changes since {old.name}", "", *_changes(old, run), ""]
    lines += ["## Problems", "", *_problems(run.rows)]
    return "\n".join(lines) + "\n"


def comma_separated(run: RunData) -> str:
    """One line a problem under a line of names; times in milliseconds."""
    names = baselines_of(run.rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = [f"{name} {part}" for name in names for part in ("speedup", "low", "high")]
    writer.writerow([*_FIRST_COLUMNS, *columns, *_LAST_COLUMNS])
    for row in run.rows:
        values = [value for name in names for value in _interval(row, name)]
        facts = [row.problem, row.level, row.status, row.verified, row.device_ms, row.host_ms]
        marks = [len(row.algebraic), len(row.left_to_pytorch), len(row.kernels)]
        seconds = round(sum(row.seconds.values()), 3)
        writer.writerow([*facts, row.floor_ms, row.share_of_floor, *values, *marks, seconds])
    return stream.getvalue()


def _interval(row: Row, baseline: str) -> Sequence[float | str]:
    found = row.speedup(baseline)
    if found is None:
        return "", "", ""
    return found.device.value, found.device.low, found.device.high


def _summary(run: RunData) -> Iterator[str]:
    summary = summarise(run.rows)
    if not summary.all.against:
        for level in summary.levels:
            count = f"{level.verified} of {level.problems} verified"
            yield f"- {level.name}: {count}, {apart(level)}not timed"
        return
    fast = [f"fast_{entry.p:g}" for entry in summary.all.against[0].fast]
    yield from _table(
        ["level", "verified", "baseline", "geomean", "faster", "slower", *fast],
        [cells for level in summary.levels for cells in _level(level)],
    )


def _level(level: Level) -> Iterator[list[str]]:
    for it in level.against:
        shares = [f"{entry.share:.0%}" for entry in it.fast]
        lost = f" ({level.not_drop_in} not drop-in)" if level.not_drop_in else ""
        verified = f"{level.verified}/{level.problems}{lost}"
        mean = "" if it.geomean is None else f"{it.geomean:.3f}"
        yield [level.name, verified, it.baseline, mean, str(it.faster), str(it.slower), *shares]


def _changes(old: RunData, new: RunData) -> Iterator[str]:
    rows = []
    for it in changes_between(old, new):
        before, after = (row.device_ms if row else None for row in (it.old, it.new))
        statuses = [row.status if row else "missing" for row in (it.old, it.new)]
        ratio = "" if it.ratio is None else f"{it.ratio:.3f}"
        rows.append(
            [it.problem, _ms(before), _ms(after), ratio, " → ".join(dict.fromkeys(statuses))]
        )
    yield from _table(["problem", "before, ms", "now, ms", "time", "status"], rows)


def _problems(rows: Sequence[Row]) -> Iterator[str]:
    names = baselines_of(rows)
    yield from _table(
        ["problem", "status", "ms", *(f"over {name}" for name in names), "of floor", "marks"],
        [_problem(row, names) for row in rows],
    )


def _problem(row: Row, names: Sequence[str]) -> list[str]:
    speedups = []
    for name in names:
        found = row.speedup(name)
        it = None if found is None else found.device
        speedups.append("" if it is None else f"{it.value:.2f} [{it.low:.2f}, {it.high:.2f}]")
    share = "" if row.share_of_floor is None else f"{row.share_of_floor:.0%}"
    marks = ["algebraic"] if row.algebraic else []
    marks += [f"{len(row.left_to_pytorch)} left to PyTorch"] if row.left_to_pytorch else []
    why = "" if row.verified else f": {row.summary.partition(chr(10))[0][:120]}"
    return [row.problem, row.status + why, _ms(row.device_ms), *speedups, share, ", ".join(marks)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _words(value: object) -> str:
    return ", ".join(dict.fromkeys(map(str, value))) if isinstance(value, list) else str(value)
