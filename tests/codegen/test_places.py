"""Convolutions by place as products of patches: one emitted module on the emulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_CHILD = Path(__file__).parent / "emulated" / "places.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("dtype", "sums"), [("bfloat16", "cut"), ("float32", "cut"), ("float32", "whole")]
)
def test_products_of_patches_on_the_emulator(
    run_script: Callable[..., Any], dtype: str, sums: str
) -> None:
    seen = run_script(_CHILD, dtype, sums)
    assert seen["findings"] == []
    for sizes, errors in seen["errors"].items():
        # Sums of the same products; what follows is rounded where PyTorch rounds it.
        # The CUDA cores add along K in another order than PyTorch.
        assert max(errors) <= (1.1 if dtype == "bfloat16" else 1.5), (sizes, errors)
    # Its products are no float32 ones where TF32 is allowed.
    assert dtype == "bfloat16" or min(seen["errors"]["captured"]) > 0.9
    assert dtype == "bfloat16" or max(seen["errors"]["more"]) > 0.3
