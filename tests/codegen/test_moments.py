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
    for sizes, (result, *statistics, last_mean, last_variance) in seen["distances"].items():
        assert max(statistics) < 1e-5, (sizes, statistics)
        # Behind two roundings to TF32.
        assert max(last_mean, last_variance) < 1e-4, (sizes, last_mean, last_variance)
        # What is next to a number of TF32 may be rounded to the other one.
        assert result < 5e-4, (sizes, result)
    assert max(seen["distances"]["captured"]) > 0
    # Of four norms two have one launch, and one has totals alone. The last one, of what two write
    # side by side, has its own first kernel.
    launched = seen["launched"]
    assert launched["captured"] == launched["special"] and launched["captured"]["kernel"] == 2
    # All of them have a kernel of states before, where there are more parts.
    assert launched["more parts than are read"]["kernel"] == 5
    # Kernels that make no moments have one that does after them, but for the depthwise one.
    apart = {name for name in launched["no TF32"] if name.endswith("_moments_kernel")}
    assert apart == {f"conv2d{it}_moments_kernel" for it in ("", "_2")}
