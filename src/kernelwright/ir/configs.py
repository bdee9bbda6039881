"""Tunables of the kernel families: what a plan fixes before there is any text."""

from dataclasses import dataclass

from kernelwright.ir.attention_configs import AttentionConfig
from kernelwright.ir.conv_configs import ConvConfig, DirectConfig
from kernelwright.ir.joint import JointConfig
from kernelwright.ir.loop_configs import LoopConfig
from kernelwright.ir.product_configs import ProductConfig
from kernelwright.ir.recurrent_configs import RecurrentConfig
from kernelwright.ir.row_configs import RowConfig
from kernelwright.ir.scan_configs import ScanConfig
from kernelwright.ir.window_configs import WindowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseConfig:
    """Tunables of kernels that make each element by itself: pointwise ones and gathers."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that one access moves."""
    unroll: int
    """Vectors that each thread has in flight."""

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.unroll} accesses of {self.width} elements each"


Config = (
    PointwiseConfig
    | ProductConfig
    | ConvConfig
    | DirectConfig
    | JointConfig
    | RowConfig
    | ScanConfig
    | LoopConfig
    | WindowConfig
    | RecurrentConfig
    | AttentionConfig
)
