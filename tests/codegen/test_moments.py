"""Moments that products make for the norms after them: one emitted module on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_CHILD = Path(__file__).parent / "emulated" / "moments.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sums", ["whole", "cut"])
def test_norms_begin_with_moments_of_products(run_script: Callable[..., Any], sums: str) -> None:
    seen = run_script(_CHILD, sums)
    assert seen["findings"] == []
    for sizes, (result, *statistics) in seen["distances"].items():
        assert max(statistics) < 1e-5, (sizes, statistics)
        # What is next to a number of TF32 may be rounded to the other one.
        assert result < 5e-4, (sizes, result)
    assert max(seen["distances"]["captured"]) > 0
