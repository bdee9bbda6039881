"""The charts of a report: which numbers of the rows go where."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.report.charts import (
    Bar,
    Chart,
    Line,
    Point,
    bars,
    power_line,
    scatter,
    x_axis,
    y_axis,
)
from kernelwright.report.row import BEST, Row
from kernelwright.report.run_data import RunData
from kernelwright.report.summary import baselines_of

_LEGEND = (
    ("own", "kernels of its own alone"),
    ("left", "leaves calls to PyTorch"),
    ("algebraic", "algebraic: computes less than was written"),
)
_LEAST_ERROR = 1e-10
"""Where results without any error stand: a logarithmic axis has no zero."""
_GREATEST_ERROR = 1.0
"""Where those stand that have no digit right, however wrong they are."""
_LEAST_FLOOR_MS = 1e-3
"""Where problems stand whose floor is less than any launch takes: others keep their room."""


def anchor(problem: str) -> str:
    """The identifier of a problem's section on the page."""
    return "p-" + "".join(char if char.isalnum() else "-" for char in problem)


def speedup_charts(rows: Sequence[Row]) -> list[Chart]:
    """One for each baseline, and one for the best of them where there are several."""
    names = baselines_of(rows)
    wanted = (*names, BEST) if len(names) > 1 else names
    return [_speedups(number, name, rows) for number, name in enumerate(wanted)]


def _speedups(number: int, baseline: str, rows: Sequence[Row]) -> Chart:
    items = []
    for row in rows:
        speedup = row.speedup(baseline)
        if row.verified and speedup is not None:
            it = speedup.device
            text = f"{row.problem}: {it.value:.2f}x [{it.low:.2f}, {it.high:.2f}] over {baseline}"
            items.append(
                Bar(value=it.value, low=it.low, high=it.high, text=text, href=anchor(row.problem))
            )
    return bars(
        f"speedup{number}",
        f"Speedup over {baseline}",
        f"{len(items)} verified problems, the fastest first; device time with a cold L2, whiskers "
        "are 95 % intervals. Values are in the table of problems.",
        f"times as fast as {baseline}",
        items,
    )


def floor_chart(rows: Sequence[Row]) -> Chart:
    """Measured time over the least time of the machine model."""
    shown = [row for row in rows if row.verified and row.device_ms and row.floor_ms]
    points = [
        Point(
            x=max(row.floor_ms or 0.0, _LEAST_FLOOR_MS),
            y=row.device_ms or 0.0,
            kind=kind_of(row),
            text=f"{row.problem}: {row.device_ms:.4g} ms, floor {row.floor_ms:.3g} ms",
            href=anchor(row.problem),
        )
        for row in shown
    ]
    both = [value for point in points for value in (point.x, point.y)]
    axes = (
        x_axis("floor, ms", [point.x for point in points]),
        y_axis("measured, ms", both),
    )
    lines = (
        power_line(axes, 1.0, 1, "the floor"),
        power_line(axes, 2.0, 1, "2x"),
        power_line(axes, 10.0, 1, "10x"),
    )
    return scatter(
        "floor",
        "Time against the floor",
        "The floor is the least time that the card needs to move the problem's bytes or do its "
        "arithmetic. Tiny problems lie above it by the time that any launch takes; floors below a "
        "microsecond stand there.",
        axes,
        points,
        tuple(line for line in lines if line),
        _LEGEND,
    )


def roofline_chart(run: RunData) -> Chart:
    """Achieved arithmetic over intensity, under the card's ceilings."""
    shown = [row for row in run.rows if row.verified and row.device_ms and row.bytes and row.flops]
    points = [
        Point(
            x=(row.flops or 0) / (row.bytes or 1),
            y=_teraflops(row),
            kind=kind_of(row),
            text=f"{row.problem}: {_teraflops(row):.3g} TFLOP/s at "
            f"{(row.flops or 0) / (row.bytes or 1):.3g} FLOP per byte ({row.arithmetic})",
            href=anchor(row.problem),
        )
        for row in shown
    ]
    machine = _machine(run)
    used = {row.arithmetic for row in shown}
    roofs = {unit: rate / 1e12 for unit, rate in machine.get("flops", {}).items() if unit in used}
    axes = (
        x_axis("FLOP per byte of the problem", [point.x for point in points]),
        y_axis("TFLOP/s", [*(point.y for point in points), *roofs.values()]),
    )
    lines = [power_line(axes, rate, 0, unit) for unit, rate in roofs.items()]
    if "copy_bandwidth" in machine:
        lines.append(power_line(axes, machine["copy_bandwidth"] / 1e12, 1, "memory"))
    return scatter(
        "roofline",
        f"Roofline{' of ' + machine['name'] if machine else ''}",
        f"{len(points)} problems with arithmetic; those without FLOPs have no place here. Bytes "
        "and FLOPs are the least that the problem needs, so a point cannot be flattered by waste.",
        axes,
        points,
        tuple(_below_roofs(axes[1].at(max(roofs.values(), default=0) or 1), lines)),
        _LEGEND,
    )


def _below_roofs(top: float, lines: Sequence[Line | None]) -> list[Line]:
    """The lines that are there; the slope ends at the highest roof."""
    found = []
    for line in lines:
        if line is None:
            continue
        if line.y1 != line.y2 and line.y2 < top < line.y1:
            share = (line.y1 - top) / (line.y1 - line.y2)
            x2 = round(line.x1 + share * (line.x2 - line.x1), 1)
            line = Line(x1=line.x1, y1=line.y1, x2=x2, y2=top, label=line.label)
        found.append(line)
    return found


def error_chart(run: RunData) -> Chart:
    """The candidate's error over the reference's own, both against float64."""
    points = []
    for row in run.rows:
        worst = worst_errors(run.details.get(row.problem, {}))
        if worst is None:
            continue
        own, reference = worst
        text = f"{row.problem}: error {own:.2e}, the reference's {reference:.2e}"
        points.append(
            Point(
                x=_shown_error(reference),
                y=_shown_error(own),
                kind=kind_of(row) if row.verified else "wrong",
                text=text,
                href=anchor(row.problem),
            )
        )
    axes = (
        x_axis("the reference's own error", [point.x for point in points]),
        y_axis("error", [value for point in points for value in (point.x, point.y)]),
    )
    line = power_line(axes, 1.0, 1, "as accurate")
    return scatter(
        "errors",
        "Error against the reference's own",
        "Root mean square error over that of the result, both against float64; of each problem the "
        "case where ours is largest beside the reference's. Exact results stand at 1e-10, those "
        "without a right digit at 1.",
        axes,
        points,
        (line,) if line else (),
        (*_LEGEND, ("wrong", "not verified")),
    )


def _shown_error(error: float) -> float:
    return min(max(error, _LEAST_ERROR), _GREATEST_ERROR)


def worst_errors(details: Mapping[str, Any]) -> tuple[float, float] | None:
    """(candidate, reference) of the comparison that is worst for the candidate, if there is any."""
    checks = details.get("verdict", {}).get("checks", ())
    pairs = [
        (float(it["candidate"]), float(it["reference"]))
        for check in checks
        for it in check.get("errors", ())
    ]
    if not pairs:
        return None
    return max(pairs, key=lambda it: (max(it[0], _LEAST_ERROR) / max(it[1], _LEAST_ERROR), it[0]))


def kind_of(row: Row) -> str:
    """How a row is marked on charts."""
    return "algebraic" if row.algebraic else "left" if row.left_to_pytorch else "own"


def _teraflops(row: Row) -> float:
    return (row.flops or 0) / (row.device_ms or 1.0) * 1e-9


def _machine(run: RunData) -> Mapping[str, Any]:
    """Rates of the card that most plans were made for; empty if none was kept."""
    for details in run.details.values():
        if "machine" in details:
            machine: Mapping[str, Any] = details["machine"]
            return machine
    return {}
