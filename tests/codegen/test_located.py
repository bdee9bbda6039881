"""Pointwise kernels that ask for the row and the column of their elements: on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHILD = Path(__file__).parent / "emulated" / "located.py"


def test_places_on_the_emulator(run_script: Callable[..., Any]) -> None:
    seen = run_script(_CHILD)
    assert seen["findings"] == []
    assert {key: count for key, count in seen["wrong"].items() if count != 0} == {}
    assert len(seen["wrong"]) == 9 * 5
