"""Draw the chart and write the table of README.md from the published run of KernelBench.

    python benchmarks/front_page.py

Reads docs/results/kernelbench.json. Writes docs/assets/speedups.svg and what stands between the
marks in README.md. Nothing is run. Means are geometric, over all verified problems of a group. A
baseline whose results are less accurate than is allowed has no time: eager's counts there.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from kernelbench_groups import PRODUCTS, RUN, SLOWER, Row, level, number  # noqa: E402

README = ROOT / "README.md"
CHART = ROOT / "docs" / "assets" / "speedups.svg"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""Marks in README.md, each in a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Problems that are summed up together; speeds are times eager's, geometric means."""

    name: str
    problems: int
    verified: int
    compiled: float
    """Speed of torch.compile in its default mode."""
    best: float
    """Speed of the faster of eager and torch.compile, problem by problem."""
    ours: float
    over_best: float
    """Our speed over that of the faster of both."""
    slower: int
    """Problems on which we are slower than the faster of both."""


def main() -> None:
    """Write both."""
    run = json.loads(RUN.read_text(encoding="utf-8"))
    found = groups(run["rows"])
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(chart(found[:3]), encoding="utf-8")
    README.write_text(
        with_results(README.read_text(encoding="utf-8"), run, found), encoding="utf-8"
    )


def groups(rows: list[Row]) -> list[Group]:
    """The three levels, and the matrix products of level 1."""
    wanted: dict[str, Callable[[Row], bool]] = {
        "level 1, single operators": lambda row: level(row) == 1,
        "level 2, operators in a row": lambda row: level(row) == 2,
        "level 3, networks": lambda row: level(row) == 3,
        "float32 matrix products": lambda row: level(row) == 1 and number(row) in PRODUCTS,
    }
    return [_group(name, list(filter(within, rows))) for name, within in wanted.items()]


def _group(name: str, rows: list[Row]) -> Group:
    timed = [row for row in rows if row["verified"] and row["device_ms"]]
    times = [{it["name"]: it["device_ms"] for it in row["baselines"]} for row in timed]
    eager = [it["eager"] for it in times]
    best = [min(it.values()) for it in times]
    ours = [row["device_ms"] for row in timed]

    def over(slow: list[float], fast: list[float]) -> float:
        return geometric_mean(a / b for a, b in zip(slow, fast, strict=True))

    return Group(
        name=name,
        problems=len(rows),
        verified=sum(row["verified"] for row in rows),
        compiled=over(eager, [it.get("torch.compile", it["eager"]) for it in times]),
        best=over(eager, best),
        ours=over(eager, ours),
        over_best=over(best, ours),
        slower=sum(a / b < SLOWER for a, b in zip(best, ours, strict=True)),
    )


def with_results(readme: str, run: Mapping[str, Any], found: list[Group]) -> str:
    """The README with its table, and where and when that was measured."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join([BEGIN, *table(found), "", *_provenance(run["provenance"], run["rows"]), END])
    return f"{before}{lines}{after}"


def table(found: list[Group]) -> Iterator[str]:
    """A row for each group."""
    yield (
        "| KernelBench | verified | over eager | over the better of eager and torch.compile "
        "| slower |"
    )
    yield "| --- | --- | --- | --- | --- |"
    for it in found:
        share = f"{it.verified} of {it.problems}"
        yield f"| {it.name} | {share} | {it.ours:.2f}x | {it.over_best:.2f}x | {it.slower} |"


def _provenance(facts: Mapping[str, Any], rows: list[Row]) -> Iterator[str]:
    timed = sum(row["device_ms"] is not None for row in rows)
    done = (
        "written, verified and timed"
        if timed == len(rows)
        else f"written, verified and ({timed}) timed"
    )
    (wall,) = facts["wall_seconds"].values()
    yield (
        f"{facts['gpus']} {facts['cards'][0]}, torch {facts['torch']}, CUDA {facts['cuda']}, "
        f"driver {facts['driver']},"
    )
    yield (
        f"{facts['date'][:10]}, commit {facts['commit']}: all {facts['problems']} problems "
        f"{done} in {wall:.0f} s. Device time with a cold L2 cache, "
        "geometric means."
    )


# --- The chart ---------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 720, 300
_LEFT, _TOP, _BOTTOM = 44, 48, 264
_GROUP = 224
"""Units from one group of bars to the next."""
_BAR, _GAP = 44, 6
_LOW, _HIGH = 0.8, 5.0
"""Ends of the axis, which is logarithmic: times the speed of eager."""
_TICKS = (1, 2, 3, 4, 5)
_STYLE = """
    text { font: 16px system-ui, sans-serif; fill: #1f2328; }
    .value { text-anchor: middle; font-weight: 600; paint-order: stroke; stroke-width: 4px; }
    .value { stroke: #fff; }
    .group { text-anchor: middle; }
    .tick { text-anchor: end; fill: #59636e; }
    .line { stroke: #d1d9e0; } .one { stroke: #59636e; }
    .eager { fill: #afb8c1; } .compiled { fill: #6e9bd1; } .best { fill: #2f6fb7; }
    .ours { fill: #0f8a6d; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; } .tick { fill: #9198a1; } .value { stroke: #0d1117; }
      .line { stroke: #3d444d; } .one { stroke: #9198a1; }
      .eager { fill: #656c76; } .compiled { fill: #4f7fb8; } .best { fill: #79b0ee; }
      .ours { fill: #2fc49b; }
    }"""
_SERIES = (
    ("eager", "eager"),
    ("compiled", "torch.compile"),
    ("best", "the better of both"),
    ("ours", "kernelwright"),
)


def chart(found: list[Group]) -> str:
    """An SVG of bars for each group, readable on light and dark pages."""
    parts = [*_axis(), *_legend()]
    for place, group in enumerate(found):
        parts += _bars(_LEFT + 16 + place * _GROUP, group)
    said = "; ".join(f"{it.name}: {it.ours:.2f} times as fast as eager" for it in found)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"  <title>Speed over eager PyTorch. {said}.</title>",
            f"  <style>{_STYLE}\n  </style>",
            *(f"  {part}" for part in parts),
            "</svg>\n",
        ]
    )


def _axis() -> Iterator[str]:
    for tick in _TICKS:
        y = _height(tick)
        kind = "one" if tick == 1 else "line"
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{round(y + 5, 1)}">{tick}x</text>'


def _legend() -> Iterator[str]:
    x = _LEFT
    for name, label in _SERIES:
        yield f'<rect class="{name}" x="{x}" y="10" width="14" height="14"/>'
        yield f'<text x="{x + 20}" y="22">{label}</text>'
        x += 40 + 10 * len(label)


def _bars(x: int, group: Group) -> Iterator[str]:
    speeds = {"eager": 1.0, "compiled": group.compiled, "best": group.best, "ours": group.ours}
    for place, (name, label) in enumerate(_SERIES):
        left, top = x + place * (_BAR + _GAP), _height(speeds[name])
        yield (
            f'<rect class="{name}" x="{left}" y="{top}" width="{_BAR}" '
            f'height="{round(_BOTTOM - top, 1)}"><title>{group.name}, {label}: '
            f"{speeds[name]:.2f} times eager</title></rect>"
        )
        yield (
            f'<text class="value" x="{left + _BAR // 2}" y="{round(top - 5, 1)}">'
            f"{speeds[name]:.2f}</text>"
        )
    middle = x + (4 * _BAR + 3 * _GAP) // 2
    yield f'<text class="group" x="{middle}" y="{_BOTTOM + 24}">{group.name}</text>'


def _height(speed: float) -> float:
    """Where a speed lies on the axis."""
    share = log(speed / _LOW) / log(_HIGH / _LOW)
    return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)


if __name__ == "__main__":
    main()
