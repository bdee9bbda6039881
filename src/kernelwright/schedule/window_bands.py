"""Configurations of depthwise convolutions in bands of planes (kernels/pooling/window_bands.cuh).

Seconds are modelled: the instructions of a warp, whose numbers are from the machine code of windows
of 3 x 3 to 7 x 7, the memory time, and what goes before both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from kernelwright.ir.kinds import Window
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import Machine
from kernelwright.schedule.window_sums import ColumnSums

_OUTPUTS = (4, 8, 2)
"""Columns of a thread."""
_THREADS = (128, 256, 64)
"""Threads of a block."""
_BANDS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Bands of a plane."""
_WORD = 64
"""The kernel keeps a bit for each element that a thread reads of a row."""
_WIDEST = 4
"""Bytes of an element: a register."""
_TRIED = 6
"""Configurations for the tuner."""
_WARP_FLOPS = 64
"""FLOPs of one multiply-add of a warp."""
_REGISTERS = 36
"""Registers of a thread for addresses, places and what is on its way."""
_STAGED = 80
"""Registers where elements are computed on their way to shared memory."""
_COPIED_BYTES = 4
"""Bytes of the shortest copy to shared memory that takes no register."""
_PARTS = 4
"""Parts that copies come in."""
_PART_BYTES = 256
"""Bytes of a part of a band, at least."""
_ROW, _ACCESS, _WRITE = 14, 3, 10
"""Instructions of a row that a thread reads, of an access to it, and of a row that it writes."""
_ITEM, _ELEMENT = 43, 7
"""Instructions of an access that is staged through registers, and of an element of an operand."""
_TEAM, _COPY, _FILTER, _START = 25, 7, 11, 400
"""Instructions of a part of a band, of one copy of it, of 32 weights, and of what goes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands(ColumnSums):
    """A configuration at the captured sizes."""

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        sums = (self.older + 1) * self.config.outputs
        kept = prod(self.window.size) + sums + self.columns
        staged = _STAGED if self.prologue_inputs > 1 else 0
        return max(kept + len(self.tensors) + _REGISTERS, staged)

    @property
    def groups(self) -> int:
        """Threads of a band."""
        return -(-self.output.shape[-1].hint // self.config.outputs)

    @property
    def bands(self) -> int:
        """Bands of a plane."""
        return -(-self.output.shape[-2].hint // self.config.steps)

    @property
    def all_bands(self) -> int:
        """Bands of all planes."""
        return self.bands * prod(dim.hint for dim in self.output.shape[:-2])

    @property
    def rows(self) -> int:
        """Rows of the source of a band."""
        rows = (self.config.steps - 1) * self.window.stride[0] + self.span(0)
        return min(rows, self.source.shape[-2].hint)

    @property
    def tile_bytes(self) -> int:
        """Bytes of the source of a band."""
        return self.rows * self.source.shape[-1].hint * self.source.dtype.itemsize

    @property
    def band_bytes(self) -> int:
        """Shared memory of a band."""
        size = 24 + 8 * (len(self.tensors) + 1) + 4 * (prod(self.window.size) + 3)
        if self.config.store < self.config.outputs:
            size += self.config.steps * self.output.shape[-1].hint * self.output.dtype.itemsize
        return size + self.tile_bytes

    @property
    def own(self) -> int:
        """Bands of a block; 0 where none fits."""
        room = self.config.shared - 128
        return min(self.config.threads // self.groups, room // self.band_bytes, self.all_bands)

    @property
    def seconds(self) -> float:
        """Seconds of a launch whose operands are in memory."""
        machine, rates = self.machine, self.machine.windows
        blocks = -(-self.all_bands // self.own)
        warps = -(-self.own * self.groups // machine.limits.warp_threads)
        each = -(-blocks // machine.sm_count)
        resident = min(each, self.config.blocks)
        instructions = self._instructions()
        issued = each * warps * instructions * _WARP_FLOPS * machine.sm_count
        issued /= machine.flops["fp32_simt"]
        # One block after the other, where the others do not fill its pauses.
        waves = -(-each // resident)
        alone = waves * instructions * rates.band_instruction + (waves - 1) * rates.band_seconds / 2
        size = (self.source.bytes_hint + self.output.bytes_hint) / machine.copy_bandwidth
        # The first blocks compute nothing before they have a part of what they read.
        first = self.source.bytes_hint / machine.copy_bandwidth * resident / each
        first /= _PARTS if self._comes_in_parts else 1
        parts = (issued, alone, size - first)
        longest = max(parts)
        return rates.band_seconds + first + longest + rates.band_beside * (sum(parts) - longest)

    @property
    def _is_copied(self) -> bool:
        """Whether elements take no register on their way to shared memory."""
        return self.prologue_inputs == 1 and (self.bands == 1 or self._comes_in_parts)

    @property
    def _comes_in_parts(self) -> bool:
        """Whether a thread begins before all of its band is there."""
        access = self.config.vector * self.source.dtype.itemsize
        is_long = self.bands > 1 or self.tile_bytes >= _PARTS * _PART_BYTES
        return self.prologue_inputs == 1 and access >= _COPIED_BYTES and is_long

    def _steps(self) -> float:
        """Rows of the result that a thread goes through, on average over the bands."""
        stride, padding, total = self.window.stride[0], self.window.padding[0], 0
        inside = (self.source.shape[-2].hint - 1 + padding) // stride + 1
        for begin in range(0, self.output.shape[-2].hint, self.config.steps):
            end = min(begin + self.config.steps, self.output.shape[-2].hint)
            first = max(begin, min(padding // stride, begin + self.older))
            total += max(0, min(end + self.older, inside) - first)
        return total / self.bands

    def _row(self) -> float:
        """Instructions of a row of the source: a thread converts each element."""
        across = self.config.outputs * self.window.stride[1]
        access = min(self.config.vector, across & -across)
        return _ROW + self.columns + _ACCESS * -(-self.columns // access)

    def _instructions(self) -> float:
        """Instructions of a warp, on average."""
        config = self.config
        taken = min(self.window.stride[0], self.span(0))
        write = _WRITE + (2 + len(self.tensors)) * config.outputs
        step = prod(self.window.size) * config.outputs + taken * self._row() + write
        warps = config.threads / self.machine.limits.warp_threads
        filters = self.own / warps * -(-prod(self.window.size) // 32) * _FILTER
        flushed = self.older * (write + 2 * config.outputs)
        return self._steps() * step + flushed + self._staging(warps) + filters + _START

    def _staging(self, warps: float) -> float:
        """Instructions of a warp of so many, that copy the source."""
        config, limits = self.config, self.machine.limits
        if self._comes_in_parts:
            access = config.vector * self.source.dtype.itemsize
            copies = -(-self.tile_bytes // _PARTS // access // limits.warp_threads)
            return max(1, self.own / warps) * _PARTS * (_TEAM + _COPY * copies)
        if self._is_copied:
            return _COPY * self.own * self.tile_bytes / limits.access_bytes / config.threads
        items = self.own * self.rows * self.source.shape[-1].hint / config.vector
        each = _ITEM + _ELEMENT * self.prologue_inputs * config.vector
        return each * items / config.threads


def band_configs(
    window: Window,
    output: TensorType,
    inputs: Sequence[ValueType],
    prologue_inputs: int,
    machine: Machine,
) -> tuple[WindowConfig, ...]:
    """Configurations of a depthwise convolution in two dimensions, best first."""
    tensors = tuple(kind for kind in inputs if isinstance(kind, TensorType))
    is_wide = any(kind.dtype.itemsize > _WIDEST for kind in tensors)
    if len(window.size) != 2 or is_wide or len(tensors[0].shape) < 2 or not output.numel_hint:
        return ()
    height = output.shape[-2].hint
    lengths = dict.fromkeys(-(-height // bands) for bands in _BANDS)
    found: list[Bands] = []
    for outputs, threads, steps in product(_OUTPUTS, _THREADS, lengths):
        case = Bands(
            window=window,
            output=output,
            tensors=tensors,
            prologue_inputs=prologue_inputs,
            config=_config(output, tensors[0], outputs, threads, steps, machine),
            machine=machine,
        )
        found += _with_room(case)
    found.sort(key=lambda case: case.seconds)
    return tuple(dict.fromkeys(case.config for case in found))[:_TRIED]


def _config(
    output: TensorType,
    source: TensorType,
    outputs: int,
    threads: int,
    steps: int,
    machine: Machine,
) -> WindowConfig:
    widest = machine.limits.access_bytes // source.dtype.itemsize
    return WindowConfig(
        way=WindowWay.BANDS,
        threads=threads,
        vector=gcd(widest, source.shape[-1].hint),
        outputs=outputs,
        store=gcd(outputs, output.shape[-1].hint),
        steps=steps,
    )


def _with_room(case: Bands) -> tuple[Bands, ...]:
    """With as many blocks of a multiprocessor as registers allow, and with half as many, where
    a thread has enough of them and a block has room for a band."""
    machine, threads = case.machine, case.config.threads
    if case.columns + 2 * 8 > _WORD or case.registers > machine.windows.thread_registers:
        return ()
    rounded = -(-case.registers // 8) * 8
    most = machine.registers_per_sm // (threads * rounded)
    found = []
    for blocks in {most, most // 2} - {0}:
        reserved = machine.limits.reserved_shared_bytes
        shared = (machine.shared_memory_per_block + reserved) // blocks - reserved
        config = replace(case.config, blocks=blocks, shared=shared // 16 * 16)
        found.append(replace(case, config=config))
    return tuple(it for it in found if it.own > 0)
