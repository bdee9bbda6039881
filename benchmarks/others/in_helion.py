"""Problems beside Helion: the same function as its kernels, eager PyTorch, and ours.

    python benchmarks/others/in_helion.py --emit --folder FILES
    HELION_AUTOTUNE_BUDGET_SECONDS=60 python benchmarks/others/in_helion.py --folder FILES \\
        --seconds 560 --output FILE.json

The first call needs no GPU: it writes what each problem of `problems` becomes. The second one needs
nvcc, a GPU, torch and Helion, and no kernelwright. Each kernel is tuned at the problem's sizes as
Helion's variables say, which are recorded; so is how long the first call took. Products of float32
run twice: as they come, in TF32, and as three of TF32 ("tf32x3").
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from typing import Any

import torch
import torch._inductor.runtime.triton_compat as triton_names
from beside import Case, main
from timing import rms_error, wall_ms

if not hasattr(triton_names, "IntelGPUError"):
    # Helion 1.5 imports this name, which torch 2.11 does not have. Only Intel's Triton raises it.
    triton_names.IntelGPUError = type("IntelGPUError", (Exception,), {})

# Its cache tells no precisions apart: "tf32x3" would get the configuration found for TF32.
os.environ["HELION_SKIP_CACHE"] = "1"

_PRODUCTS = ("matmul", "linear_relu", "mlp", "attention")
"""Problems whose products of float32 Helion computes in TF32 unless told otherwise."""


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Milliseconds, error and seconds of the first call; nothing of what has no kernel."""
    from tiles import KERNELS

    if case.name not in KERNELS:
        return
    ways = {"helion": None, **({"helion_tf32x3": "tf32x3"} if case.name in _PRODUCTS else {})}
    for name, precision in ways.items():
        call = KERNELS[case.name](partial(_kernel, precision=precision), case.module.state_dict())
        began = time.monotonic()
        found = call(*case.inputs)
        torch.cuda.synchronize()
        seconds = round(time.monotonic() - began, 1)
        ms = wall_ms(lambda it=call: it(*case.inputs))
        yield {name: {"ms": ms, "error": rms_error(found, case.exact), "first_seconds": seconds}}


def _kernel(function: Callable[..., Any], *, precision: str | None) -> Callable[..., Any]:
    import helion

    settings = {} if precision is None else {"dot_precision": precision}
    return helion.kernel(function, **settings)


def _versions() -> Mapping[str, str]:
    variables = {name: it for name, it in os.environ.items() if name.startswith("HELION_")}
    return {"helion": metadata.version("helion"), **variables}


if __name__ == "__main__":
    main(__doc__.partition("\n")[0], measure, _versions, "helion.json")
