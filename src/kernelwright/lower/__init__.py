"""Graph to graph: how tensors lie in memory, what is computed twice, which reductions are split.

The rewrites before it say what is computed, the schedule after it which nodes share a kernel. The
passes are one list in `passes.py`.
"""

from kernelwright.lower.attention import with_heads_read_once
from kernelwright.lower.loops import LOOPS, with_layers, with_loops
from kernelwright.lower.lowered import Decision, Lowered, Pass
from kernelwright.lower.memory_format import faster_on_channels_last, on_channels_last
from kernelwright.lower.passes import PASSES, lower

__all__ = [
    "LOOPS",
    "PASSES",
    "Decision",
    "Lowered",
    "Pass",
    "faster_on_channels_last",
    "lower",
    "on_channels_last",
    "with_heads_read_once",
    "with_layers",
    "with_loops",
]
