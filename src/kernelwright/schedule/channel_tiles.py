"""Tiles of a depthwise convolution whose channels are last: what a block of
kernels/pooling/window_channel_parameters.cuh has, as the launcher chooses it."""

from dataclasses import dataclass
from math import prod

from kernelwright.ir.kinds import Window
from kernelwright.ir.sizes import pieces, product
from kernelwright.ir.types import Dim, TensorType
from kernelwright.ir.window_configs import WindowConfig
from kernelwright.machine import CARD_WITH_WGMMA

_LANES = 32
"""Most threads that have all channels of a chunk, whose weights a block keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTiles:
    """Some columns of some rows for each thread, of some channels."""

    window: Window
    output: TensorType
    config: WindowConfig

    @property
    def shared(self) -> int:
        """Bytes of the weights of a block."""
        vectors = -(-prod(self.window.size) * self.config.vector // 4) | 1
        return _LANES * vectors * 16

    @property
    def all_groups(self) -> int:
        """Threads that have all channels."""
        return -(-self.output.shape[-1].hint // self.config.vector)

    @property
    def groups(self) -> int:
        """Threads that have all channels of a chunk."""
        groups = self.all_groups
        if groups <= _LANES:
            return groups
        sector = max(1, 32 // (self.config.vector * self.output.dtype.itemsize))
        return max(range(_LANES, _LANES // 2 - 1, -sector), key=self._busy)

    @property
    def parts(self) -> Dim:
        """Parts of the result, of which a block has a chunk of channels."""
        *images, height, width, _ = self.output.shape
        down, across = pieces(height, self.config.steps), pieces(width, self.config.outputs)
        return pieces(product((*images, down, across)), self.config.threads // self.groups)

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.parts.hint * -(-self.all_groups // self.groups)

    @property
    def has_room_for_moments(self) -> bool:
        """Whether shared memory holds the moments of a block's threads besides."""
        words = self.config.threads * (1 + 2 * self.config.vector)
        return self.shared + 4 * words <= CARD_WITH_WGMMA.limits.static_shared_bytes

    def _busy(self, own: int) -> float:
        """Share of the threads that have channels, with so many to a chunk."""
        threads, groups = self.config.threads, self.all_groups
        return threads // own * own / threads * groups / (-(-groups // own) * own)
