"""Pooling: on the emulator, over shapes and layouts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "emulated"

# Maxima are exact; means of numbers up to 1 lose a few units in the last place.
_ALLOWED = {
    "maximum over columns": 0.0,
    "mean over rows": 3e-7,
    "maximum over planes": 0.0,
    "half mean in lines": 5e-4,
}


@pytest.mark.parametrize("name", _ALLOWED)
def test_pooling_on_the_emulator(name: str) -> None:
    done = subprocess.run(
        [sys.executable, _FOLDER / "windows.py", name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= _ALLOWED[name], seen["worst"]
