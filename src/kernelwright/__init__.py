"""kernelwright: a PyTorch module in, one self-contained file of CUDA kernels out, verified.

    import kernelwright as kw

    done = kw.optimize("model.py", "model_new.py")  # done.verdict, done.measurement
    fast = kw.optimize(model, (x,))  # a module in memory; fast.kernelwright, fast.why_not(x)
    verdict, measurement = kw.judge("model.py", "anybodys.py")

Importing the package imports nothing else: a name is fetched from its room when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.errors import KernelwrightError as KernelwrightError
    from kernelwright.pipeline import judge as judge
    from kernelwright.pipeline import optimize as optimize

__version__ = "0.1.0"

__all__ = ["KernelwrightError", "judge", "optimize"]

_ROOM_OF = {
    "KernelwrightError": "kernelwright.errors",
    "judge": "kernelwright.pipeline",
    "optimize": "kernelwright.pipeline",
}


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOM_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOM_OF])
