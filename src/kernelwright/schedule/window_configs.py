"""Configurations of the window family, best first by a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from kernelwright.ir.kinds import Pooling, Window
from kernelwright.ir.types import Dim, TensorType, ValueType
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import Machine
from kernelwright.schedule.window_bands import band_configs
from kernelwright.schedule.window_channels import channel_configs

_WORD = 64
"""The kernels keep a bit for each element of a row, and for each plane of a window."""
_WIDEST = 8
"""Bytes of what is pooled."""
_WALK_CHOICES = (
    (1, 256, 3, 64, 2, 0),
    (1, 256, 4, 32, 2, 0),
    (1, 256, 3, 64, 1, 0),
    (1, 256, 4, 64, 1, 1),
    (1, 256, 3, 64, 1, 1),
    (1, 256, 2, 64, 2, 1),
    (1, 256, 3, 64, 1, 2),
    (1, 256, 1, 64, 2, 0),
)
"""How many times the fewest columns that whole vectors allow; threads of a block, blocks of a
multiprocessor, steps of a segment, planes in flight, steps asked for ahead."""
_IMAGE_CHOICES = ((2, 128, 6, 64, 2, 1), (2, 256, 3, 64, 2, 0), *_WALK_CHOICES[:6])
"""Choices for two dimensions: neighbouring windows share more of what is read than of three."""
_FLAT_CHOICES = (
    (2, 64, 14, 4, 1, 0),
    (2, 128, 7, 4, 1, 0),
    (2, 256, 4, 4, 1, 0),
    (1, 256, 5, 4, 1, 0),
    (1, 256, 1, 4, 1, 0),
    (1, 256, 4, 1, 1, 0),
)
"""Choices where there is no walk."""
_NARROW_CHOICE = (2, 256, 3, 5, 2, 0)
"""The choice for planes of rows that are neither whole vectors nor columns for a warp."""
_RUN_CHOICE = (4, 128, 8, 4, 1, 0)
"""The choice where there is no walk and rows are no whole vectors."""
_TILE_CHOICES = ((32 * 2**10, 6), (40 * 2**10, 5))
"""Bytes of a tile of planes, and blocks of a multiprocessor."""
_FLAT = {
    2: WindowConfig(way=WindowWay.FLAT, threads=256, outputs=2, blocks=8),
    3: WindowConfig(way=WindowWay.FLAT, threads=256, outputs=1, blocks=8),
}
"""The choice for images and volumes of rows that no wide access fits, whose windows share nothing.
Only extremes of volumes take it: two averages of 2 x 2 x 2 after a batch norm took twice as long as
by a tile or a walk."""
_FLAT_READS = 8
"""Elements of a window at most: as many as registers have room for, twice."""
_TILES = 1024
"""Tiles that the source makes at least: few do not hide the first one's way."""
_CHOICES = {1: _FLAT_CHOICES, 2: _IMAGE_CHOICES, 3: _WALK_CHOICES}
"""By how many dimensions are pooled."""
_DOT_CHOICES = {
    1: ((1, 256, 4, 4, 1), (2, 256, 4, 4, 1), (1, 256, 4, 1, 1)),
    2: ((1, 256, 4, 32, 1), (1, 256, 4, 32, 2), (1, 128, 8, 16, 2), (2, 128, 5, 32, 1)),
    3: (),
}
"""Choices with weights, by how many dimensions are pooled: as above, without steps asked for
ahead; fewer blocks where registers do not allow them."""
_SINGLE_CHOICES = ((9, 4), (12, 3), (27, 2))
"""Where windows are one column wide: up to so many rows of a window, of all operands together, so
many blocks of a multiprocessor, of which no thread spills."""
_MOST_SINGLE = 3
"""Planes and rows of a plane of such a window, of which that is known."""
_SHORTEST_WALK = 4
"""Steps of such a window: its columns alone are work for the card."""
_REPEATED = 8
"""At most one plane of so many is read by two segments of its walk."""
_MOST_OUTPUTS = 8
"""Columns of a thread, beyond the fewest: warps have code for each place they may begin at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The last dimension."""

    size: int
    stride: int
    offset: int
    """Elements of the first vector before the first window."""
    width: int
    """Elements of a row of the result."""
    vector: int
    """Elements of an access."""
    warp: int
    """Threads."""

    @property
    def multiple(self) -> int:
        """So many windows begin a whole number of vectors apart."""
        return self.vector // gcd(self.vector, self.stride)

    @property
    def is_single(self) -> bool:
        """Each window is one column, and they are all columns."""
        return self.size == self.stride == 1

    def is_filled_by(self, times: int, runs: int) -> bool:
        """Whether a warp has columns for all threads of so many times the fewest, `runs` times."""
        outputs = times * self.multiple
        fits = outputs <= _MOST_OUTPUTS and self.warp * outputs * runs <= self.width
        return times == 1 or fits

    def elements(self, outputs: int) -> int:
        """Elements of the whole vectors that hold the windows of so many neighbours."""
        used = self.offset + (outputs - 1) * self.stride + self.size
        return -(-used // self.vector) * self.vector


def window_configs(
    window: Window,
    output: TensorType,
    inputs: Sequence[ValueType],
    machine: Machine,
    prologue_inputs: int = 1,
) -> tuple[WindowConfig, ...]:
    """What the tuner tries for a pooling, in this order."""
    return _window_configs(window, output, tuple(inputs), machine, prologue_inputs)


@lru_cache(maxsize=512)
def _window_configs(
    window: Window,
    output: TensorType,
    inputs: tuple[ValueType, ...],
    machine: Machine,
    prologue_inputs: int,
) -> tuple[WindowConfig, ...]:
    """Plans of one module are made several times, of layers that are alike."""
    general = WindowConfig(way=WindowWay.ELEMENTS, threads=256)
    if window.op is Pooling.DOT_LAST:
        return (*channel_configs(window, output, inputs, prologue_inputs, machine), general)
    is_dot = window.op is Pooling.DOT
    wide = [
        kind
        for kind in inputs[: -1 if is_dot else None]
        if isinstance(kind, TensorType) and kind.shape and kind.shape[-1] != Dim.static(1)
    ]
    sizes = [kind.dtype.itemsize for kind in (output, *wide)]
    widths = [kind.shape[-1].hint for kind in wide] or [1]
    vector = _vector(max(sizes), widths[0], machine)
    line = _line(window, output, vector, machine)
    if is_dot:
        # Of wide accesses, more columns than registers hold may be the fewest.
        halves = [vector >> times for times in range(3) if vector >> times]
        tried = (_line(window, output, it, machine) for it in halves)
        found = (_dots(window, it, len(wide), output, machine) for it in tried)
        walks = next(filter(None, found), ())
        bands = band_configs(window, output, inputs, prologue_inputs, machine)
        is_short = output.shape[-1].hint <= machine.windows.band_width
        return (*bands, *walks, general) if is_short else (*walks, *bands, general)
    groups = _groups(line, output, machine)
    walks = _walks(window, line, groups, len(wide), machine)
    lines = _lines(line, machine)
    walks = (*_tiles(window, line, inputs), *walks)
    if line.stride > machine.windows.far_stride:
        return (*lines, general, *walks) if lines else (general, *walks)
    return (*walks, *lines, general)


def _line(window: Window, output: TensorType, vector: int, machine: Machine) -> _Line:
    return _Line(
        size=(window.size[-1] - 1) * window.dilation[-1] + 1,
        stride=window.stride[-1],
        offset=-window.padding[-1] % vector,
        width=output.shape[-1].hint,
        vector=vector,
        warp=machine.limits.warp_threads,
    )


def _groups(line: _Line, output: TensorType, machine: Machine) -> int:
    """The fewest columns that whole vectors allow, for each thread of a busy card."""
    busy = machine.windows.busy_threads * machine.sm_count
    return output.numel_hint // line.multiple // busy


def _vector(itemsize: int, width: int, machine: Machine) -> int:
    """Elements of an access of which a row of the source holds a whole number."""
    return gcd(max(2, machine.limits.access_bytes // itemsize), width)


def _walks(
    window: Window, line: _Line, groups: int, operands: int, machine: Machine
) -> tuple[WindowConfig, ...]:
    """Few columns of whole vectors each, in segments of the walk of several lengths; `groups`: of
    the fewest columns that whole vectors allow, for each thread of a busy card; `operands` that
    differ from column to column."""
    dims, rates = len(window.size), machine.windows
    walk = -2 if dims == 2 else -3
    across = window.size[-2] if dims == 3 else 1
    size, stride = (window.size[walk], window.stride[walk]) if dims > 1 else (1, 1)
    span = (size - 1) * window.dilation[walk] + 1 if dims > 1 else 1
    is_short = dims > 1 and line.is_single and max(span, across) <= _MOST_SINGLE
    short = _short_walks(span, stride, span * across * operands) if is_short else ()
    configs = []
    for times, threads, blocks, steps, planes, ahead in (
        *short,
        *_odd(line, dims),
        *_CHOICES[dims],
    ):
        outputs = times * line.multiple
        elements = line.elements(outputs)
        flight = elements * across * min(span, stride)
        is_coded = max(elements, span) <= _WORD and across <= _WORD // 2
        if not is_coded or flight > rates.flight_elements:
            continue
        is_narrow = (times, threads, blocks, steps, planes, ahead) == _NARROW_CHOICE
        if not is_narrow and not line.is_filled_by(times, steps if dims == 1 else 1):
            continue
        wide = dims > 1 and elements * across + span * outputs > rates.narrow_registers
        configs.append(
            WindowConfig(
                way=WindowWay.WALK,
                threads=threads,
                vector=line.vector,
                outputs=outputs,
                steps=_steps(steps, groups, times),
                blocks=min(blocks, rates.wide_threads // threads) if wide else blocks,
                planes=planes,
                ahead=ahead,
            )
        )
    return tuple(dict.fromkeys(configs))


def _odd(line: _Line, dims: int) -> tuple[tuple[int, ...], ...]:
    """Choices that come first where no access is wider than an element."""
    if line.vector > 1 or line.is_single:
        return ()
    if dims == 1:
        return (_RUN_CHOICE,)
    is_narrow = dims == 2 and not line.is_filled_by(2, 1)
    return (_NARROW_CHOICE,) if is_narrow else ()


def _tiles(window: Window, line: _Line, inputs: Sequence[ValueType]) -> tuple[WindowConfig, ...]:
    """Runs of memory for a block, where hardly anything is in two windows and a tile has several
    steps, or one of three dimensions. What is computed of several operands is left to walks, which
    load those of a channel once: tiles took half as long again."""
    tensors = [kind for kind in inputs if isinstance(kind, TensorType)]
    source, dims = tensors[0], len(window.size)
    # Where there is no walk, neighbours in a line may share more, but wide accesses need no help.
    shared = 1 if dims > 1 else 2
    fits = (
        window.size[-1] > 1
        and (dims > 1 or line.vector == 1)
        and all(own <= shared * step for own, step in zip(window.size, window.stride, strict=True))
        and not any(window.padding)
        and set(window.dilation) == {1}
        and len(source.shape) >= dims
        and len(tensors) == 1
    )
    if not fits:
        return ()
    step = prod(dim.hint for dim in source.shape[-dims:][1:]) * source.dtype.itemsize
    step *= window.size[0] if dims > 1 else 1
    steps = 1 if dims == 3 else 2
    is_flat = (
        (dims == 2 or (dims == 3 and window.op is Pooling.MAXIMUM))
        and line.vector == 1
        and prod(window.size) <= _FLAT_READS
        and source.bytes_hint >= _TILES * _TILE_CHOICES[0][0]
    )
    flat = (_FLAT[dims],) if is_flat else ()
    tiles = tuple(
        WindowConfig(way=WindowWay.TILES, threads=256, blocks=blocks, shared=shared)
        for shared, blocks in _TILE_CHOICES
        if steps * step < shared - 64
        if source.bytes_hint >= _TILES * shared
    )[:1]
    return (*flat, *tiles)


def _steps(wanted: int, groups: int, times: int) -> int:
    """Steps of a segment: fewer where there is little work for the card."""
    return min(wanted, max(1, groups // times))


def _dots(
    window: Window, line: _Line, operands: int, output: TensorType, machine: Machine
) -> tuple[WindowConfig, ...]:
    """Configs with weights: threads keep the elements of a window and all of the weights."""
    dims, groups = len(window.size), _groups(line, output, machine)
    rows = (window.size[0] - 1) * window.dilation[0] + 1 if dims == 2 else 1
    new = min(rows, window.stride[0]) if dims == 2 else 1
    configs = []
    for times, threads, most, steps, planes in _DOT_CHOICES[dims]:
        outputs = times * line.multiple
        elements = line.elements(outputs)
        used = (outputs - 1) * line.stride + line.size
        registers = rows * used + prod(window.size) + min(planes, new) * operands * elements
        registers += 2 * outputs + machine.windows.other_registers
        fits = max(elements, rows) <= _WORD and registers <= machine.windows.thread_registers
        if not fits or not line.is_filled_by(times, 1):
            continue
        fitting = machine.registers_per_sm // (threads * registers)
        configs.append(
            WindowConfig(
                way=WindowWay.WALK,
                threads=threads,
                vector=line.vector,
                outputs=outputs,
                steps=_steps(steps, groups, times),
                blocks=max(1, min(most, fitting)),
                planes=min(planes, new),
                ahead=0,
            )
        )
    return tuple(dict.fromkeys(configs))


def _short_walks(span: int, stride: int, rows: int) -> tuple[tuple[int, ...], ...]:
    """Choices for windows one column wide, as where channels come last: nothing is shared between
    columns, and short segments fill the card sooner; `rows` of a window, of all operands."""
    steps = max(_SHORTEST_WALK, -(-_REPEATED * (span - stride) // stride))
    fitting = [blocks for most, blocks in _SINGLE_CHOICES if rows <= most][:1]
    return tuple((1, 256, blocks, own, 2, 0) for blocks in fitting for own in (steps, steps // 2))


def _lines(line: _Line, machine: Machine) -> tuple[WindowConfig, ...]:
    """A row of the result for a block, or as much of it as its threads have vectors for."""
    found = []
    for threads, steps, blocks in ((512, 6, 2), (256, 6, 4), (128, 8, 6)):
        fitting = (threads * line.vector - line.offset - line.size) // line.stride + 1
        outputs = -(-min(fitting, line.width) // line.multiple) * line.multiple
        elements = line.elements(outputs)
        # Of short rows most threads would have nothing.
        busy = outputs > 0 and 2 * elements >= threads * line.vector
        if busy and elements * _WIDEST <= machine.limits.static_shared_bytes:
            found.append(
                WindowConfig(
                    way=WindowWay.LINES,
                    threads=threads,
                    vector=line.vector,
                    outputs=outputs,
                    steps=steps,
                    blocks=blocks,
                )
            )
    return tuple(found)
