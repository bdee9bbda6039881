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
    lined = [key for key, kernels in seen["ran"].items() if kernels == ["lined_lines_kernel"]]
    assert lined == [
        *(f"{shape} {layout}" for shape in _FILLED for layout in ("plain", "every other")),
        "(2, 3, 1024) plain",
    ]
    assert seen["ran"]["(7, 24) plain"] == ["lined_rows_kernel"]
    # Lines that begin between vectors: one kernel walks them, as lines or as one run of memory.
    uneven = {key: kernels for key, kernels in seen["ran"].items() if key not in lined}
    for key in ("(5, 2041) shifted", "(2, 3, 701) plain", "(3, 1030) plain", "(9, 11) shifted"):
        assert uneven[key] == ["lined_strided_kernel"]
