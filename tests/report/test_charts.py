"""Where things stand on a chart."""

import pytest

from kernelwright.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Bar,
    axis,
    bars,
    power_line,
    x_axis,
    y_axis,
)

DECADES = Axis(title="", low=0.01, high=100.0, start=0.0, end=400.0)


def test_equal_factors_are_equal_distances() -> None:
    assert [DECADES.at(value) for value in (0.01, 0.1, 1.0, 10.0, 100.0)] == [0, 100, 200, 300, 400]
    assert DECADES.at(1e-9) == 0
    assert DECADES.at(1e9) == 400


def test_ticks_are_round_numbers() -> None:
    assert [tick.label for tick in DECADES.ticks] == ["0.01", "0.1", "1", "10", "100"]
    narrow = Axis(title="", low=0.4, high=6.0, start=0.0, end=1.0)
    assert [tick.label for tick in narrow.ticks] == ["0.5", "1", "2", "5"]
    wide = Axis(title="", low=1e-9, high=1e9, start=0.0, end=1.0)
    assert 3 <= len(wide.ticks) <= 12


def test_an_axis_has_room_for_all_values_and_for_none() -> None:
    found = axis("", [3.0, 0.0, 7.0, 2000.0], 0.0, 100.0)
    assert 0 < found.at(3.0) < found.at(2000.0) < 100
    assert axis("", [], 0.0, 100.0).at(1.0) == 50.0
    alone = axis("", [5.0], 0.0, 100.0)
    assert alone.at(5.0) == pytest.approx(50.0)


def test_bars_stand_in_order_on_the_line_of_one() -> None:
    values = {"a": (0.5, 0.4, 0.6), "b": (4.0, 3.0, 5.0), "c": (1.1, 0.9, 1.3)}
    items = [
        Bar(value=value, low=low, high=high, text=name, href=name)
        for name, (value, low, high) in values.items()
    ]
    chart = bars("x", "", "", "", items)
    assert [mark.text for mark in chart.marks] == ["b", "c", "a"]
    assert [mark.kind for mark in chart.marks] == ["faster", "even", "slower"]
    first, _, last = chart.marks
    assert first.y < chart.base < last.y  # upwards is faster
    assert first.high < first.y < first.low
    assert first.high >= TOP and last.low <= HEIGHT - BOTTOM
    assert LEFT <= first.x < last.x <= WIDTH - RIGHT


def test_lines_end_at_the_edges() -> None:
    axes = x_axis("", [1.0, 1000.0]), y_axis("", [1.0, 1000.0])
    line = power_line(axes, 1.0, 1, "same")
    assert line is not None
    assert (line.x1, line.y1) == (LEFT, HEIGHT - BOTTOM)
    assert (line.x2, line.y2) == (WIDTH - RIGHT, TOP)
    steep = power_line(axes, 100.0, 1, "far above")
    assert steep is not None
    assert steep.y2 == TOP
    assert steep.x2 < WIDTH - RIGHT
    flat = power_line(axes, 10.0, 0, "roof")
    assert flat is not None
    assert flat.y1 == flat.y2
    assert power_line(axes, 1e9, 0, "out of sight") is None
    assert power_line(axes, 1e9, 1, "out of sight") is None
