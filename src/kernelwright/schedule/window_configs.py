"""Configurations of the window family, best first by a model."""

from collections.abc import Sequence

from kernelwright.ir.graph import Window
from kernelwright.ir.plan import WindowConfig, WindowWay
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine

_ACCESS_BYTES = 16
_MOST_VECTORS = 40
"""Of a step, in registers."""
_MOST_STRIDE = 3
"""Above, neighbouring threads read too far apart from one another."""


def window_configs(
    window: Window, output: TensorType, inputs: Sequence[ValueType], machine: Machine
) -> tuple[WindowConfig, ...]:
    """What the tuner tries for a pooling, in this order."""
    sizes = [kind.dtype.itemsize for kind in (output, *inputs) if isinstance(kind, TensorType)]
    vector = max(2, _ACCESS_BYTES // max(sizes))
    general = WindowConfig(way=WindowWay.ELEMENTS, threads=256)
    walks = _walks(window, output, vector)
    return (*walks, general)


def _walks(window: Window, output: TensorType, vector: int) -> tuple[WindowConfig, ...]:
    """As few columns as whole vectors allow, in segments of the walk of several lengths."""
    stride = window.stride[-1]
    outputs = 1
    while outputs * stride % vector != 0:
        outputs *= 2
    span = (window.size[-1] - 1) * window.dilation[-1] + 1
    vectors = ((outputs - 1) * stride + span + 2 * vector - 2) // vector
    for size in window.size[-2:-1] if len(window.size) == 3 else ():
        vectors *= size
    if stride > _MOST_STRIDE or vectors > _MOST_VECTORS:
        return ()
    return tuple(
        WindowConfig(way=WindowWay.WALK, threads=256, vector=vector, outputs=outputs, steps=steps)
        for steps in ((32, 16, 64) if len(window.size) > 1 else (1,))
    )
