"""Configurations of the scan family, best first by a model."""

from collections.abc import Sequence

from kernelwright.ir.graph import Scan
from kernelwright.ir.plan import ScanConfig
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine


def scan_configs(
    scan: Scan, output: TensorType, inputs: Sequence[ValueType], machine: Machine
) -> tuple[ScanConfig, ...]:
    """What the tuner tries for a scan, in this order."""
    return (ScanConfig(threads=256),)
