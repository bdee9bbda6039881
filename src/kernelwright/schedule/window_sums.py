"""What is alike in depthwise convolutions whose threads go down columns and keep their sums."""

from dataclasses import dataclass

from kernelwright.ir.kinds import Window
from kernelwright.ir.types import TensorType
from kernelwright.ir.window_configs import WindowConfig
from kernelwright.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSums:
    """A configuration at the captured sizes."""

    window: Window
    """The window, of rows and columns, and of channels where these are last."""
    output: TensorType
    tensors: tuple[TensorType, ...]
    """What is pooled first, the weights last."""
    prologue_inputs: int
    config: WindowConfig
    machine: Machine

    @property
    def source(self) -> TensorType:
        """What is pooled."""
        return self.tensors[0]

    @property
    def older(self) -> int:
        """Rows of the result whose sums a thread has besides those of the newest."""
        return (self.span(0) - 1) // self.window.stride[0]

    @property
    def columns(self) -> int:
        """Columns of a row from the first to the last that a thread reads."""
        return (self.config.outputs - 1) * self.window.stride[1] + self.span(1)

    def span(self, at: int) -> int:
        """Positions from the first to the last of a window, along its dimension `at`."""
        return (self.window.size[at] - 1) * self.window.dilation[at] + 1
