"""Configurations of depthwise convolutions whose channels are last
(kernels/pooling/window_channels.cuh).

Seconds are modelled, like those of bands: the instructions of a warp, whose numbers are from the
machine code of windows of 3 x 3 to 7 x 7, the rows that a thread waits for, and the memory time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from kernelwright.ir.kinds import Window
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import Machine
from kernelwright.schedule.channel_tiles import ChannelTiles
from kernelwright.schedule.window_sums import ColumnSums

_VECTORS = (8, 4, 2, 1)
"""Channels of a thread."""
_OUTPUTS = (4, 7, 2, 8, 1)
"""Columns of a thread."""
_THREADS = (128, 64, 256)
"""Threads of a block."""
_SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 28)
"""Segments of a plane."""
_WORD = 32
"""The kernel keeps a bit for each column that a thread reads of a row."""
_WIDEST = 4
"""Bytes of an element: a register."""
_TRIED = 6
"""Configurations for the tuner: the best ones that differ in what a thread has of a row."""
_WARP_FLOPS = 64
"""FLOPs of one multiply-add of a warp."""
_REGISTERS = 42
"""Registers of a thread for addresses and places."""
_COMPUTED = 24
"""More of them where what is pooled is computed of several operands."""
_PARTS = 4
"""Parts of a multiprocessor, each with a scheduler and registers."""
_SKIPPED = 32
"""Products of a row of a window from which those of no result are left out."""
_BRANCH, _ROW, _ACCESS, _WRITE = 3, 12, 3, 5
"""Instructions of a row of a window, of a row that a thread reads, of an access to it, and of one
that it writes."""
_ELEMENT = 2
"""Instructions of an element of the result, and as many for each operand of the epilogue."""
_COPY, _START = 14, 200
"""Instructions of a weight that is copied to shared memory, and of what goes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels(ColumnSums):
    """A configuration at the captured sizes."""

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        vector = self.config.vector
        sums = (self.older + 1) * self.config.outputs
        others = len(self.tensors) - 1 - len(self._read)
        kept = prod(self.window.size) + sums + self.columns + others
        read = sum(max(1, vector * it.dtype.itemsize // _WIDEST) for it in self._read)
        computed = _COMPUTED if self.prologue_inputs > 1 else 0
        return kept * vector + read * self.columns + computed + _REGISTERS

    @property
    def tiles(self) -> ChannelTiles:
        """What blocks have."""
        return ChannelTiles(window=self.window, output=self.output, config=self.config)

    @property
    def seconds(self) -> float:
        """Seconds of a launch whose operands are in memory."""
        machine, rates = self.machine, self.machine.windows
        warps = self.config.threads // machine.limits.warp_threads
        each = -(-self.tiles.blocks // machine.sm_count)
        resident = min(each, self.config.blocks)
        instructions = self._instructions()
        # A scheduler has whole warps.
        own = _PARTS * -(-each * warps // _PARTS)
        issued = own * instructions * _WARP_FLOPS * machine.sm_count
        issued /= machine.flops["fp32_simt"]
        waves = -(-each // resident)
        waits = self._rows() * rates.channel_row_seconds
        alone = waves * max(instructions * rates.channel_instruction, waits)
        size = (self.source.bytes_hint + self.output.bytes_hint) / machine.copy_bandwidth
        parts = (issued, alone, size)
        longest = max(parts)
        return rates.channel_seconds + longest + rates.band_beside * (sum(parts) - longest)

    @property
    def _read(self) -> tuple[TensorType, ...]:
        """Operands of the prologue that are read for every row."""
        first, *others = self.tensors[: self.prologue_inputs]
        return (first, *(it for it in others if any(dim != ONE for dim in it.shape[-3:-1])))

    def _segments(self) -> Iterator[tuple[int, int]]:
        height = self.output.shape[-3].hint
        for begin in range(0, height, self.config.steps):
            yield begin, min(begin + self.config.steps, height)

    def _rows(self) -> int:
        """Rows of the source that a thread reads for a segment, at most."""
        stride, height = self.window.stride[0], self.source.shape[-3].hint
        return min(height, (self.config.steps - 1) * stride + self.span(0))

    def _products(self) -> float:
        """Rows of windows that a thread multiplies, on average over the segments."""
        stride, padding, height = (
            self.window.stride[0],
            self.window.padding[0],
            self.source.shape[-3].hint,
        )
        segments = list(self._segments())
        taps = range(0, self.span(0), self.window.dilation[0])
        if self.window.size[1] * self.config.outputs * self.config.vector < _SKIPPED:
            return (self._rows() / stride + self.older / 2) * len(taps)
        inside = sum(
            0 <= row * stride - padding + tap < height
            for begin, end in segments
            for row in range(begin, end)
            for tap in taps
        )
        return inside / len(segments)

    def _instructions(self) -> float:
        """Instructions of a warp, on average."""
        config, vector = self.config, self.config.vector
        row = self.window.size[1] * config.outputs * vector
        is_widened = self.source.dtype.itemsize < _WIDEST
        converted = self.columns * vector if is_widened or self.prologue_inputs > 1 else 0
        read = _ROW + self.columns * _ACCESS * len(self._read) + converted
        after = len(self.tensors) - self.prologue_inputs
        write = config.outputs * (_WRITE + _ELEMENT * vector * after)
        filters = prod(self.window.size) * vector
        start = _START + filters + _COPY * filters * self.tiles.groups / config.threads
        rows = self._rows() * (read + _BRANCH * self.window.size[0])
        return start + rows + self._products() * row + config.steps * write


def channel_configs(
    window: Window,
    output: TensorType,
    inputs: Sequence[ValueType],
    prologue_inputs: int,
    machine: Machine,
) -> tuple[WindowConfig, ...]:
    """Configurations of a depthwise convolution of channels that are last, best first."""
    tensors = tuple(kind for kind in inputs if isinstance(kind, TensorType))
    is_wide = any(kind.dtype.itemsize > _WIDEST for kind in tensors)
    if is_wide or len(tensors[0].shape) < 3 or not output.numel_hint:
        return ()
    height = output.shape[-3].hint
    lengths = dict.fromkeys(-(-height // segments) for segments in _SEGMENTS)
    found: list[Channels] = []
    for vector, outputs, threads, steps in product(_VECTORS, _OUTPUTS, _THREADS, lengths):
        case = Channels(
            window=window,
            output=output,
            tensors=tensors,
            prologue_inputs=prologue_inputs,
            config=WindowConfig(
                way=WindowWay.CHANNELS,
                threads=threads,
                vector=vector,
                outputs=outputs,
                steps=steps,
            ),
            machine=machine,
        )
        if output.shape[-1].hint % vector == 0 and _fits(case):
            found.append(_resident(case))
    found.sort(key=lambda case: case.seconds)
    best: dict[tuple[int, int], WindowConfig] = {}
    for case in found:
        best.setdefault((case.config.vector, case.config.outputs), case.config)
    return tuple(best.values())[:_TRIED]


def _fits(case: Channels) -> bool:
    access = case.config.vector * max(kind.dtype.itemsize for kind in case.tensors[:1])
    limits = case.machine.limits
    return (
        access <= limits.access_bytes
        and case.columns <= _WORD
        and case.registers <= case.machine.windows.channel_registers
        and case.tiles.shared <= limits.static_shared_bytes
    )


def _resident(case: Channels) -> Channels:
    """With as many blocks of a multiprocessor as registers allow, of which each of its parts has
    its own."""
    machine = case.machine
    lanes = machine.limits.warp_threads
    registers = -(-case.registers // 8) * 8 * lanes
    warps = _PARTS * (machine.registers_per_sm // _PARTS // registers)
    blocks = warps // (case.config.threads // lanes)
    most = machine.limits.sm_threads // case.config.threads
    return replace(case, config=replace(case.config, blocks=max(1, min(blocks, most))))
