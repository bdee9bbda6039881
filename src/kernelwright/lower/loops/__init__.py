"""Loops found again: a traced module has the steps of a Python loop one after the other.

Steps of a recurrent cell become one layer (`layers.py`), steps that carry a value element by
element one `Loop` node (`carried.py`). What is done with the values of each step is done for all
steps at once (`stacking.py`).
"""

from kernelwright.lower.loops.carried import with_loops
from kernelwright.lower.loops.layers import with_layers
from kernelwright.lower.lowered import Decision

LOOPS = Decision(
    name="loops found again",
    what="A loop's steps are one recurrent layer where they call a cell, and one kernel where they "
    "carry a value element by element.",
)

__all__ = ["LOOPS", "with_layers", "with_loops"]
