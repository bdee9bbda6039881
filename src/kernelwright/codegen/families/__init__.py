"""The table of writers, one for each family of `kernelwright.schedule.families`."""

from kernelwright.codegen.families.attention import ATTENTION
from kernelwright.codegen.families.conv import CONV
from kernelwright.codegen.families.copies import COPIES
from kernelwright.codegen.families.gather import GATHER
from kernelwright.codegen.families.gemm import GEMM
from kernelwright.codegen.families.joint import JOINT
from kernelwright.codegen.families.loop import LOOP
from kernelwright.codegen.families.pointwise import POINTWISE
from kernelwright.codegen.families.pooling import POOLING
from kernelwright.codegen.families.recurrent import RECURRENT
from kernelwright.codegen.families.rows import ROWS
from kernelwright.codegen.families.scan import SCAN
from kernelwright.codegen.families.writer import Writer
from kernelwright.ir.plan import Kernel

WRITERS: dict[str, Writer] = {
    "attention": ATTENTION,
    "conv": CONV,
    "copies": COPIES,
    "gather": GATHER,
    "gemm": GEMM,
    "joint": JOINT,
    "loop": LOOP,
    "pointwise": POINTWISE,
    "pooling": POOLING,
    "recurrent": RECURRENT,
    "rows": ROWS,
    "scan": SCAN,
}
"""By the name of the family."""


def writer_of(kernel: Kernel) -> Writer:
    """The writer of a kernel."""
    return WRITERS[kernel.family]


def asks_for_tf32(kernel: Kernel) -> bool:
    """Whether its launches say if TF32 is as accurate as the user's call."""
    return writer_of(kernel).only_at(kernel) is not None
