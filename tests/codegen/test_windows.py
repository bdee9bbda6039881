"""Pooling: on the emulator, over shapes and layouts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent / "emulated"

# Maxima are exact; means of numbers up to 1 lose a few units in the last place.
_ALLOWED = {
    "maximum over columns": 0.0,
    "mean over rows": 3e-7,
    "maximum over planes": 0.0,
    "half mean in lines": 5e-4,
    "products with weights": 2e-6,
    "products of every other place": 2e-3,
    "products in a line": 1e-6,
    "products in bands": 8e-6,
    "half products in bands": 8e-3,
    "short products in a run": 7e-2,
    "short products in parts": 7e-2,
    "scaled products in bands": 2e-3,
    "products of far places in bands": 2e-6,
    "maximum in tiles": 0.0,
    "mean in tiles": 3e-7,
    "maximum in tiles of a line": 0.0,
    "maximum in tiles of planes": 0.0,
    "maximum for each": 0.0,
    "mean for each": 3e-7,
}


_UNTILED = {
    "mean in tiles": ["(5, 3, 7, 5)"],
    "maximum in tiles of a line": ["(5, 3, 33)"],
    "maximum in tiles of planes": ["(3, 1, 2, 6, 5)"],
}
"""Parts of a concatenation that are too short for a tile; tiles take all others."""


_ALLOWED_OF_CHANNELS = {
    "bfloat16, 7 x 7": 7e-2,
    "float32, every other, with an epilogue": 2e-6,
    "float16, far apart, scaled, with an epilogue": 8e-3,
    "any channels, rows left out": 3e-6,
}
"""Of channels that are last."""


@pytest.mark.parametrize("name", _ALLOWED_OF_CHANNELS)
def test_depthwise_of_last_channels_on_the_emulator(
    name: str, run_script: Callable[..., Any]
) -> None:
    seen = run_script(_FOLDER / "channel_windows.py", name)
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= _ALLOWED_OF_CHANNELS[name], seen["worst"]


@pytest.mark.parametrize("name", _ALLOWED)
def test_pooling_on_the_emulator(name: str, run_script: Callable[..., Any]) -> None:
    seen = run_script(_FOLDER / "windows.py", name)
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= _ALLOWED[name], seen["worst"]
    assert seen["untiled"] == _UNTILED.get(name, [])
