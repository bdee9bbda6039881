"""Configurations of the window family, best first by a model."""

from collections.abc import Sequence

from kernelwright.ir.graph import Window
from kernelwright.ir.plan import WindowConfig
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine


def window_configs(
    window: Window, output: TensorType, inputs: Sequence[ValueType], machine: Machine
) -> tuple[WindowConfig, ...]:
    """What the tuner tries for a pooling, in this order."""
    return (WindowConfig(threads=256),)
