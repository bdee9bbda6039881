"""Convolutions with what follows them: one emitted module on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_CHILD = Path(__file__).parent / "emulated" / "convolutions.py"
_ACCURATE, _ROUNDED, _HALF = 2e-6, 2e-3, 2e-3


@pytest.mark.timeout(400)  # every form is compiled
def test_convolutions_on_the_emulator(run_script: Callable[..., Any]) -> None:
    seen = run_script(_CHILD)
    assert seen["findings"] == []
    for sizes, (first, *others, half) in seen["errors"].items():
        # Only at the captured sizes, and only while the user allows it, does it round.
        rounds = sizes in ("captured", "strided")
        assert (_ACCURATE < first < _ROUNDED) if rounds else first <= _ACCURATE, (sizes, first)
        assert max(others) <= _ACCURATE, (sizes, others)
        assert half <= _HALF, (sizes, half)
