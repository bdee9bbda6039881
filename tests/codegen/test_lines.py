"""Pointwise kernels on lines with inputs that have one element for each: on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHILD = Path(__file__).parent / "emulated" / "lines.py"

_FILLED = ((3, 1024), (5, 1000), (1, 512))
"""Shapes whose lines leave few threads of blocks without work."""


def test_lines_on_the_emulator(run_script: Callable[..., Any]) -> None:
    seen = run_script(_CHILD)
    assert seen["findings"] == []
    # Three roundings of numbers up to 3, in float32.
    assert max(seen["worst"].values()) <= 5e-7, seen["worst"]
    lined = [key for key, kernels in seen["ran"].items() if kernels == ["lines"]]
    assert lined == [
        *(f"{shape} {layout}" for shape in _FILLED for layout in ("plain", "every other")),
        "(2, 3, 1024) plain",
    ]
    assert seen["ran"]["(7, 24) plain"] == ["kernel"]
    # Lines that begin between vectors: long ones have blocks of their own; others are walked as one
    # run of memory where the result is one.
    assert seen["ran"]["(5, 2041) every ninth"] == ["uneven"]
    assert seen["ran"]["(5, 2041) shifted"] == ["uneven"]
    assert seen["ran"]["(2, 3, 701) every ninth"] == ["uneven"]
    assert seen["ran"]["(2, 3, 701) plain"] == ["unbroken"]
    assert seen["ran"]["(3, 1030) plain"] == ["unbroken"]
    assert seen["ran"]["(9, 11) shifted"] == ["unbroken"]
    assert seen["ran"]["(9, 11) operand misaligned"] == ["unbroken"]
    assert seen["ran"]["(9, 11) every ninth"] == ["kernel"]
