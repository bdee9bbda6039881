"""Convolutions by place as products of patches: one emitted module on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_CHILD = Path(__file__).parent / "emulated" / "places.py"


@pytest.mark.timeout(300)
def test_products_of_patches_on_the_emulator(run_script: Callable[..., Any]) -> None:
    seen = run_script(_CHILD)
    assert seen["findings"] == []
    for sizes, errors in seen["errors"].items():
        # Sums of the same products; what follows is rounded where PyTorch rounds it.
        assert max(errors) <= 1.1, (sizes, errors)
