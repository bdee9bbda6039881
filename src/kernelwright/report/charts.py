"""Charts as plain geometry: points of a fixed canvas, which a template writes as SVG.

All axes are logarithmic: twice as fast is as far from 1 as half as fast.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 760.0, 340.0
"""Size of every chart, in its own units; text of 12 units is readable at full size."""
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 14.0, 46.0
"""Margins around the area of the plot."""
_MANTISSAS = (1, 2, 5)
_FEW_DECADES = 1.7
"""Up to so many decades an axis has ticks at 1, 2 and 5; above only at 1."""
_AIR = 1.15
"""Room at both ends of an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    title: str
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies, at an end of the axis if beyond."""
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[Tick]:
        """Places with round numbers."""
        decades = math.log10(self.high / self.low)
        mantissas = _MANTISSAS if decades <= _FEW_DECADES else (1,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        step = max(1, round(decades / 8))
        values = [m * 10.0**e for e in range(first, last + 1, step) for m in mantissas]
        inside = [value for value in values if self.low <= value <= self.high]
        return [Tick(at=self.at(value), label=label_of(value)) for value in inside]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One problem on a chart."""

    x: float
    y: float
    kind: str
    """A class of the style sheet."""
    text: str
    """What is shown when the mouse is on it."""
    href: str
    low: float = 0.0
    high: float = 0.0
    """Ends of its interval, in the units of the canvas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line to compare with."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What the template draws."""

    name: str
    """Unique on the page, an identifier."""
    title: str
    caption: str
    x: Axis | None
    """None where the problems just stand in a row."""
    y: Axis
    marks: tuple[Mark, ...]
    lines: tuple[Line, ...] = ()
    bar: float = 0.0
    """Width of a bar; 0 where marks are points."""
    base: float = 0.0
    """Where bars begin."""
    legend: tuple[tuple[str, str], ...] = ()
    """(kind, words)."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One problem before it has a place on a canvas."""

    x: float
    y: float
    kind: str
    text: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One problem with its interval."""

    value: float
    low: float
    high: float
    text: str
    href: str

    @property
    def kind(self) -> str:
        """Whether its interval lies above 1, below, or around it."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "even"


def label_of(value: float) -> str:
    """A round number in few characters: 0.5, 20, 1e-06."""
    return f"{value:g}" if 1e-4 <= value < 1e5 else f"{value:.0e}"


def axis(title: str, values: Iterable[float], start: float, end: float) -> Axis:
    """An axis on which all the values have room."""
    present = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = min(present) / _AIR, max(present) * _AIR
    if high / low < 4:
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Axis(title=title, low=low, high=high, start=start, end=end)


def bars(name: str, title: str, caption: str, y_title: str, items: Sequence[Bar]) -> Chart:
    """Bars from 1, the highest first."""
    ordered = sorted(items, key=lambda bar: -bar.value)
    edges = [edge for bar in ordered for edge in (bar.low, bar.high)]
    y = axis(y_title, [*edges, 0.8, 1.25], HEIGHT - BOTTOM, TOP)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(ordered))
    marks = tuple(
        Mark(
            x=round(LEFT + (index + 0.5) * step, 1),
            y=y.at(bar.value),
            kind=bar.kind,
            text=bar.text,
            href=bar.href,
            low=y.at(bar.low),
            high=y.at(bar.high),
        )
        for index, bar in enumerate(ordered)
    )
    legend = (
        ("faster", "faster: the interval lies above 1"),
        ("even", "no difference beyond the interval"),
        ("slower", "slower"),
    )
    return Chart(
        name=name,
        title=title,
        caption=caption,
        x=None,
        y=y,
        marks=marks,
        bar=round(min(step * 0.8, 24.0), 2),
        base=y.at(1.0),
        legend=legend,
    )


def scatter(
    name: str,
    title: str,
    caption: str,
    axes: tuple[Axis, Axis],
    points: Sequence[Point],
    lines: tuple[Line, ...],
    legend: tuple[tuple[str, str], ...],
) -> Chart:
    """Points with lines to compare them with."""
    x, y = axes
    marks = tuple(
        Mark(x=x.at(it.x), y=y.at(it.y), kind=it.kind, text=it.text, href=it.href) for it in points
    )
    return Chart(
        name=name,
        title=title,
        caption=caption,
        x=x,
        y=y,
        marks=marks,
        lines=lines,
        legend=legend,
    )


def x_axis(title: str, values: Iterable[float]) -> Axis:
    """A horizontal axis over the whole canvas."""
    return axis(title, values, LEFT, WIDTH - RIGHT)


def y_axis(title: str, values: Iterable[float]) -> Axis:
    """A vertical one."""
    return axis(title, values, HEIGHT - BOTTOM, TOP)


def power_line(axes: tuple[Axis, Axis], factor: float, exponent: int, label: str) -> Line | None:
    """y = factor * x^exponent (exponent 0 or 1) as far as it lies within the axes, or None."""
    x, y = axes
    left, right = x.low, x.high
    if exponent:
        left, right = max(left, y.low / factor), min(right, y.high / factor)
    elif not y.low <= factor <= y.high:
        return None
    if left >= right:
        return None
    ends = [factor * end if exponent else factor for end in (left, right)]
    return Line(x1=x.at(left), y1=y.at(ends[0]), x2=x.at(right), y2=y.at(ends[1]), label=label)
