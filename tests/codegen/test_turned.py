"""Pointwise kernels that turn what they read: on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHILD = Path(__file__).parent / "emulated" / "turned.py"


def test_tiles_on_the_emulator(run_script: Callable[..., Any]) -> None:
    seen = run_script(_CHILD)
    assert seen["findings"] == []
    # Three sums of numbers up to 5, in float32.
    assert max(seen["worst"].values()) <= 2e-6, seen["worst"]
    tiled = [shape for shape, kernels in seen["ran"].items() if kernels == ["turned_tiled_kernel"]]
    shapes = ["(2, 3, 700)", "(1, 67, 131)", "(3, 64, 96)", "(2, 2, 600)", "(1, 40, 40)"]
    captured = ["(2, 3, 700)", "(16, 1024, 1024)"]
    assert tiled == [f"{at}: {shape}" for at in captured for shape in shapes]
