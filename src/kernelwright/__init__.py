"""kernelwright: a PyTorch module in, one self-contained file of CUDA kernels out, verified.

    import kernelwright as kw

    done = kw.optimize("model.py", "model_new.py")  # done.verdict, done.measurement
    fast = kw.optimize(model, (x,))  # a module in memory; fast.kernelwright, fast.why_not(x)
    verdict, measurement = kw.judge("model.py", "anybodys.py")
    measurement = kw.measure(fast, (x,))
    facts = kw.explain(model, (x,))  # facts.kernels, facts.left_to_pytorch, facts.floor_seconds

Importing the package imports nothing else: a name is fetched from its room when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.api import check as check
    from kernelwright.api import explain as explain
    from kernelwright.api import measure as measure
    from kernelwright.api import optimize as optimize
    from kernelwright.bench.measurement import Measurement as Measurement
    from kernelwright.checking import Check as Check
    from kernelwright.compiling import Sizes as Sizes
    from kernelwright.errors import KernelwrightError as KernelwrightError
    from kernelwright.graphs import Graphed as Graphed
    from kernelwright.graphs import GraphError as GraphError
    from kernelwright.module import KernelsUnusedWarning as KernelsUnusedWarning
    from kernelwright.module import OptimizedModule as OptimizedModule
    from kernelwright.pipeline import Judged as Judged
    from kernelwright.pipeline import Keep as Keep
    from kernelwright.pipeline import Optimized as Optimized
    from kernelwright.pipeline import OptimizeOptions as OptimizeOptions
    from kernelwright.pipeline import Rest as Rest
    from kernelwright.pipeline import Target as Target
    from kernelwright.pipeline import judge as judge
    from kernelwright.report.plan import Explanation as Explanation
    from kernelwright.verify.verdict import Status as Status
    from kernelwright.verify.verdict import Verdict as Verdict
    from kernelwright.worker.options import JudgeOptions as JudgeOptions

__version__ = "0.2.0"

__all__ = [
    "Check",
    "Explanation",
    "GraphError",
    "Graphed",
    "JudgeOptions",
    "Judged",
    "Keep",
    "KernelsUnusedWarning",
    "KernelwrightError",
    "Measurement",
    "OptimizeOptions",
    "Optimized",
    "OptimizedModule",
    "Rest",
    "Sizes",
    "Status",
    "Target",
    "Verdict",
    "check",
    "explain",
    "judge",
    "measure",
    "optimize",
]

_ROOM_OF = {
    "Check": "checking",
    "check": "api",
    "Explanation": "report.plan",
    "GraphError": "graphs",
    "Graphed": "graphs",
    "JudgeOptions": "worker.options",
    "Judged": "pipeline",
    "Keep": "pipeline",
    "KernelsUnusedWarning": "module",
    "KernelwrightError": "errors",
    "Measurement": "bench.measurement",
    "OptimizeOptions": "pipeline",
    "Optimized": "pipeline",
    "OptimizedModule": "module",
    "Rest": "pipeline",
    "Sizes": "compiling",
    "Status": "verify.verdict",
    "Target": "pipeline",
    "Verdict": "verify.verdict",
    "measure": "api",
    "explain": "api",
    "judge": "pipeline",
    "optimize": "api",
}


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kernelwright.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOM_OF])
