"""The table of families of kernels: everything else looks a kernel's family up here."""

from kernelwright.ir.plan import Kernel
from kernelwright.schedule.families.attention import ATTENTION
from kernelwright.schedule.families.conv import CONV
from kernelwright.schedule.families.copies import COPIES
from kernelwright.schedule.families.family import Family
from kernelwright.schedule.families.gather import GATHER
from kernelwright.schedule.families.gemm import GEMM
from kernelwright.schedule.families.joint import JOINT
from kernelwright.schedule.families.loop import LOOP
from kernelwright.schedule.families.pointwise import POINTWISE
from kernelwright.schedule.families.pooling import POOLING
from kernelwright.schedule.families.recurrent import RECURRENT
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.families.scan import SCAN

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        RECURRENT,
        ATTENTION,
        LOOP,
        ROWS,
        SCAN,
        POOLING,
        GEMM,
        JOINT,
        CONV,
        GATHER,
        POINTWISE,
        COPIES,
    )
}
"""By name, in the order in which they take nodes of a graph."""


def family_of(kernel: Kernel) -> Family:
    """The family of a kernel."""
    return FAMILIES[kernel.family]
