"""A user's problem file: load and check it, make it at other sizes, execute it.

    from kernelwright.problem import load_problem, resize

    problem = load_problem("model.py")
    small = resize(problem, {"M": 33})

Loading and resizing only read the text. `instantiate`, `shrink` and `size_variants` execute the
file, so they import torch, and so they belong in processes that may run the user's code.
"""

from typing import TYPE_CHECKING, Any

from kernelwright.problem.loading import load_problem
from kernelwright.problem.record import Problem
from kernelwright.problem.resizing import resize

if TYPE_CHECKING:
    from kernelwright.problem.cost import Cost, measure
    from kernelwright.problem.execution import Definition, Instance, execute, instantiate
    from kernelwright.problem.shrinking import (
        Budget,
        round_up,
        shrink,
        shrink_data,
        size_variants,
    )

__all__ = [
    "Budget",
    "Cost",
    "Definition",
    "Instance",
    "Problem",
    "execute",
    "instantiate",
    "load_problem",
    "measure",
    "resize",
    "round_up",
    "shrink",
    "shrink_data",
    "size_variants",
]

_NEEDS_TORCH = {
    "Budget": "shrinking",
    "Cost": "cost",
    "Definition": "execution",
    "Instance": "execution",
    "execute": "execution",
    "instantiate": "execution",
    "measure": "cost",
    "round_up": "shrinking",
    "shrink": "shrinking",
    "shrink_data": "shrinking",
    "size_variants": "shrinking",
}


def __getattr__(name: str) -> Any:
    """Import the modules that need torch when something of theirs is first asked for."""
    from importlib import import_module

    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)
