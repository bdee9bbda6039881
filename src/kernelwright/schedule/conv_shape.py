"""A convolution at its captured sizes, as the launcher of kernels/conv/ sees it."""

from dataclasses import dataclass, replace
from math import ceil, gcd, prod

from kernelwright.ir.kinds import Conv, TileMoments
from kernelwright.ir.types import Dim, DType, TensorType, ValueType

MOST_PHASES = 8
"""Most phases of a dimension (conv_shape.cuh)."""
FILTER_RUN = 16
"""Rows of the filter that the joined phases of a channel do not cross."""
_CORNER_BITS = {1: 16, 2: 8, 3: 5}
"""Bits of a corner of the box that im2col copies, by the dimensions that are convolved."""
_MOST_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvAxis:
    """One dimension that is convolved."""

    size: int
    """Elements of the input."""
    out: int
    """Elements of the result."""
    taps: int
    stride: int
    padding: int
    dilation: int
    transposed: bool
    joined: bool = False
    """Whether a position computes all of its phases, whose taps are the offsets of any of them."""
    window: int = 1
    """Results that are reduced to one: a position, whose phases they are."""
    outputs: int = 1
    """Neighbouring elements of the result that are a position of a usual convolution: taps, stride
    and dilation are those of all of them together."""

    def joining(self, outputs: int) -> "ConvAxis":
        """The dimension whose positions are so many outputs each (ConvCall::joining)."""
        divisor = gcd(self.stride, self.dilation)
        last = (outputs - 1) * self.stride + (self.taps - 1) * self.dilation
        return replace(
            self,
            taps=last // divisor + 1,
            stride=self.stride * outputs,
            dilation=divisor,
            outputs=outputs,
        )

    @property
    def phases(self) -> int:
        """Sets of output positions, computed one by one, whose taps lie at the same offsets."""
        if self.window > 1:
            return self.window
        return self.stride if self.transposed and not self.joined else 1

    @property
    def positions(self) -> int:
        """Output positions of a phase."""
        if self.window > 1:
            return ceil(self.out / self.window)
        return ceil(self.out / (self.stride if self.transposed else self.outputs))

    @property
    def step(self) -> int:
        """Input elements from one position of a phase to the next."""
        if self.transposed:
            return max(self.window // self.stride, 1)
        return self.stride * self.window

    def offsets(self, phase: int) -> tuple[int, ...]:
        """Input elements that the taps of a phase meet, from `positions * step` on."""
        if self.window > 1 and self.transposed:
            return tuple(it + phase // self.stride for it in self._met(phase % self.stride))
        if self.window > 1:
            first = phase * self.stride - self.padding
            return tuple(tap * self.dilation + first for tap in range(self.taps))
        if not self.transposed:
            return tuple(tap * self.dilation - self.padding for tap in range(self.taps))
        if self.joined:
            found = [it for own in range(self.stride) for it in self._met(own)]
            return tuple(range(min(found), max(found) + 1))
        return self._met(phase)

    def _met(self, phase: int) -> tuple[int, ...]:
        """Input elements that the taps of a phase of a transposed convolution meet."""
        place = phase + self.padding
        taps = (tap for tap in range(self.taps) if (place - tap * self.dilation) % self.stride == 0)
        return tuple((place - tap * self.dilation) // self.stride for tap in taps)

    @property
    def lower(self) -> int:
        """Where the box of what the taps meet begins, from the first element of the input."""
        found = self._all_offsets()
        if self.joined:
            return min(found)
        return min((0, *found)) if self.transposed else -self.padding

    @property
    def last_offset(self) -> int:
        """Input elements from `lower` to the last one that the first position meets."""
        return max((0, *(offset - self.lower for offset in self._all_offsets())))

    @property
    def most_taps(self) -> int:
        """Most taps that a phase has."""
        return max(len(self.offsets(phase)) for phase in range(self.phases))

    @property
    def mean_taps(self) -> float:
        """Taps of a phase, on average."""
        apart = self.stride if self.transposed else 1
        return self.most_taps if self.joined else self.taps / apart

    def _all_offsets(self) -> list[int]:
        return [it for phase in range(self.phases) for it in self.offsets(phase)]

    def fits_copies(self, spatial: int) -> bool:
        """Whether the copies' mode im2col has the bits for it."""
        most = 1 << (_CORNER_BITS[spatial] - 1)
        upper = self.lower + (self.positions - 1) * self.step - (self.size - 1)
        inside = all(-most <= corner < most for corner in (self.lower, upper))
        few = self.last_offset < 2 * most and self.phases <= MOST_PHASES
        return inside and few and self.step <= _MOST_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSizes:
    """A whole call."""

    images: int
    groups: int
    in_channels: int
    """Input channels of a group."""
    out_channels: int
    """Output channels of a group."""
    axes: tuple[ConvAxis, ...]
    """W first, then H and D as far as there are."""
    dtype: DType
    transposed: bool
    """With strides; without them a transposed convolution is a usual one."""
    turned: bool = False
    """A transposed one without strides: as a usual one, with its taps in reverse."""
    over_channels: bool = False
    """Whether results are reduced over all channels."""
    operation: int = 0
    """Instructions of long functions that are applied to each result where it is stored."""
    reads_by_place: bool = False
    """Whether what follows reads another tensor that has more than a value for each channel."""
    has_program: bool = False
    """Whether a row program does that (conv_rows.cuh)."""
    keeps_channels: bool = False
    """Whether each channel has a result of it."""
    moments: TileMoments | None = None

    def with_joined(self, dimensions: int) -> "ConvSizes":
        """These sizes with the phases along the first dimensions joined."""
        axes = [replace(axis, joined=at < dimensions) for at, axis in enumerate(self.axes)]
        return replace(self, axes=tuple(axes))

    def with_outputs(self, outputs: int) -> "ConvSizes":
        """These sizes with so many neighbouring outputs along W at a position."""
        if outputs == 1:
            return self
        return replace(self, axes=(self.axes[0].joining(outputs), *self.axes[1:]))

    @property
    def joined(self) -> int:
        """Phases or outputs of a position that are rows of the filter."""
        phases = prod(axis.stride for axis in self.axes if axis.joined)
        return phases * self.axes[0].outputs

    @property
    def rows(self) -> int:
        """Rows of the filter of one group and phase."""
        if not self.axes[0].joined and self.axes[0].outputs == 1:
            return self.out_channels
        return ceil(self.out_channels / (FILTER_RUN // self.joined)) * FILTER_RUN

    @property
    def spatial(self) -> int:
        """Dimensions that are convolved."""
        return len(self.axes)

    @property
    def taps(self) -> int:
        """Taps of the filter."""
        return prod(axis.taps for axis in self.axes)

    @property
    def window(self) -> int:
        """Results of a channel that are reduced to one."""
        return prod(axis.window for axis in self.axes)

    @property
    def phases(self) -> int:
        """Phases of all dimensions together, those of a window apart."""
        return prod(axis.phases for axis in self.axes) // self.window

    @property
    def stored_elements(self) -> int:
        """Elements that are written."""
        if self.moments is TileMoments.ALONE:
            return 0
        is_one = self.over_channels and not self.keeps_channels
        channels = 1 if is_one else self.groups * self.out_channels
        if self.window == 1:
            return self.output_elements // (self.groups * self.out_channels) * channels
        return self.positions * channels

    @property
    def positions(self) -> int:
        """Output positions of a phase, of all images."""
        return self.images * prod(axis.positions for axis in self.axes)

    @property
    def input_elements(self) -> int:
        """Elements of the input."""
        return self.images * self.groups * self.in_channels * prod(it.size for it in self.axes)

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.images * self.groups * self.out_channels * prod(it.out for it in self.axes)

    @property
    def flops(self) -> int:
        """Two for each product of an input, a tap and an output channel."""
        sides = [axis.size if axis.transposed else axis.out for axis in self.axes]
        channels = self.groups * self.in_channels * self.out_channels
        return 2 * self.images * prod(sides) * self.taps * channels


def differs_by_place(kind: ValueType, spatial: int) -> bool:
    """Whether an operand of the epilogue has more than a value for each channel."""
    if not isinstance(kind, TensorType) or kind.rank < 2:
        return False
    return any(dim.text != "1" for at, dim in enumerate(reversed(kind.shape)) if at != spatial)


def conv_sizes(conv: Conv, data: TensorType, weight: TensorType, out: ValueType) -> ConvSizes:
    """The sizes of a call with a batch dimension, by their hints."""
    turned = conv.transposed and all(step == 1 for step in conv.stride)
    transposed = conv.transposed and not turned
    count = len(conv.stride)
    axes = []
    reduction = conv.reduction
    windows = (1,) * count if reduction is None else reduction.window
    results = reduction.shape if reduction is not None else _shape_of(out)
    for at in reversed(range(count)):
        taps = weight.shape[2 + at].hint
        padding = conv.padding[at]
        axes.append(
            ConvAxis(
                size=data.shape[2 + at].hint,
                out=_used(results[2 + at].hint, windows[at], conv),
                taps=taps,
                stride=conv.stride[at],
                padding=conv.dilation[at] * (taps - 1) - padding if turned else padding,
                dilation=conv.dilation[at],
                transposed=transposed,
                window=windows[at],
            )
        )
    return ConvSizes(
        images=data.shape[0].hint,
        groups=conv.groups,
        in_channels=data.shape[1].hint // conv.groups,
        out_channels=results[1].hint // conv.groups,
        axes=tuple(axes),
        dtype=data.dtype,
        transposed=transposed,
        turned=turned,
        over_channels=reduction is not None and reduction.over_channels is not None,
        has_program=reduction is not None and reduction.result is not None,
        keeps_channels=reduction is not None and reduction.keeps_channels,
        moments=None if reduction is None else reduction.moments,
    )


def _shape_of(kind: ValueType) -> tuple[Dim, ...]:
    assert isinstance(kind, TensorType)
    return kind.shape


def _used(results: int, window: int, conv: Conv) -> int:
    """Results along a dimension that are in windows."""
    is_whole = conv.reduction is not None and conv.reduction.is_whole
    return results // window * window if is_whole else results
