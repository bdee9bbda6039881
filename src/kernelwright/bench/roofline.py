"""The least time that a problem needs, and how near a measured time comes to it."""

from dataclasses import dataclass

from kernelwright.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least work of a problem: what no correct program avoids."""

    bytes: int
    """Bytes of inputs, parameters and outputs that have to cross the device's memory bus."""
    flops: int
    """Floating-point operations, a multiply-add as two."""
    arithmetic: str
    """Key of `Machine.flops` that they run on: "fp32_simt", "tf32"."""
    algebraic: bool = False
    """Whether this is less than the problem's text asks for: then others may do still less."""

    def milliseconds(self, machine: Machine) -> float:
        """The larger of memory time and arithmetic time on `machine`."""
        return machine.floor_seconds(self.bytes, self.flops, self.arithmetic) * 1e3


def share_of_floor(floor: Floor, machine: Machine, milliseconds: float) -> float:
    """The floor over the measured time: 1.0 is the machine's limit."""
    return floor.milliseconds(machine) / milliseconds
