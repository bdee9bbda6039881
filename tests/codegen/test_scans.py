"""Scans: on the emulator, over shapes and layouts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent / "emulated"

# Relative to the sum of absolute values: a few units in the last place, however long the row is.
_ALLOWED = {
    "exclusive in blocks": 3e-7,
    "product of doubles in blocks": 1e-14,
    "product of floats in blocks": 2e-6,
    "product of floats in warps": 2e-6,
    "product of floats in columns": 2e-6,
    "half in warps": 6e-4,
    "exclusive in lanes": 3e-7,
    "half in lanes": 6e-4,
    "integers in columns": 0.0,
}


@pytest.mark.parametrize("name", _ALLOWED)
def test_scan_on_the_emulator(name: str, run_script: Callable[..., Any]) -> None:
    seen = run_script(_FOLDER / "scans.py", name)
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= _ALLOWED[name], seen["worst"]
    # Only blocks share long rows.
    assert (seen["workspace"] > 0) == ("block" in name)
