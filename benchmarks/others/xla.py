"""Problems beside XLA: the same function written in JAX, eager PyTorch, and ours.

    python benchmarks/others/xla.py --emit --folder FILES
    python benchmarks/others/xla.py --folder FILES --build
    python benchmarks/others/xla.py --folder FILES --seconds 90 --output FILE.json

The first call needs no GPU: it writes what each problem of `problems` becomes. The second one needs
nvcc; without it, the third one compiles, too. That one needs a GPU, torch and JAX, and no
kernelwright. XLA runs twice: as it comes, where float32 products may be TF32, and with the highest
precision.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from beside import Case, main
from timing import rms_error, wall_ms

PRECISIONS = {"xla": None, "xla_highest": "highest"}
"""Each way that XLA runs, and JAX's name for its precision of products."""


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Milliseconds and error in each precision."""
    import jax

    given = [_shared(it) for it in case.inputs]
    weights = {name: _shared(it) for name, it in case.module.state_dict().items()}
    for name, precision in PRECISIONS.items():
        with jax.default_matmul_precision(precision):
            # Weights are arguments, as they are everywhere else: XLA folds nothing into them.
            call = jax.jit(lambda weights, *inputs: case.problem.xla(weights)(*inputs))
            found = torch.from_dlpack(call(weights, *given))
            ms = wall_ms(lambda it=call: it(weights, *given), lambda it: it.block_until_ready())
            yield {name: {"ms": ms, "error": rms_error(found, case.exact)}}


def _shared(tensor: torch.Tensor) -> Any:
    """A tensor as an array of JAX, in the same memory."""
    from jax import dlpack

    return dlpack.from_dlpack(tensor.detach().contiguous())


def _versions() -> Mapping[str, str]:
    import jax

    return {"jax": jax.__version__}


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    main(__doc__.partition("\n")[0], measure, _versions, "xla.json")
