"""Room worker: strangers' code runs here, in child processes that may crash, hang or lie.

from kernelwright.worker import JudgeOptions, judge

verdict, measurement = judge(
    problem, path, target=None, floor=None, options=JudgeOptions(), progress=print
)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.worker.judging.judging import Judgement, judge, judge_while, judged, judgement
    from kernelwright.worker.options import Baseline, Haste, JudgeOptions, Speed, Timeouts
    from kernelwright.worker.process.pool import LocalPool

__all__ = [
    "Baseline",
    "Haste",
    "JudgeOptions",
    "Judgement",
    "LocalPool",
    "Speed",
    "Timeouts",
    "judge",
    "judge_while",
    "judged",
    "judgement",
]

_HOME = {
    "Baseline": "options",
    "Haste": "options",
    "JudgeOptions": "options",
    "Judgement": "judging.judging",
    "LocalPool": "process.pool",
    "Speed": "options",
    "Timeouts": "options",
    "judge": "judging.judging",
    "judge_while": "judging.judging",
    "judgement": "judging.judging",
    "judged": "judging.judging",
}


def __getattr__(name: str) -> Any:
    """Children import this package before they may import torch."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
