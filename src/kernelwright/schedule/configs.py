"""Configurations of a kernel, whatever its family."""

from kernelwright.ir.configs import Config
from kernelwright.ir.plan import Kernel
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of


def ranked_configs(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    """Every legal configuration, best first by the model: what the tuner tries in this order."""
    return family_of(kernel).configs(kernel, machine)
