"""Configurations of the row family, best first by a model."""

from collections.abc import Sequence

from kernelwright.ir.plan import RowConfig, RowProgram
from kernelwright.ir.types import ValueType
from kernelwright.machine import Machine


def row_configs(
    program: RowProgram, inputs: Sequence[ValueType], machine: Machine
) -> tuple[RowConfig, ...]:
    """What the tuner tries for a row program, in this order."""
    return (RowConfig(multiprocessors=machine.sm_count),)
