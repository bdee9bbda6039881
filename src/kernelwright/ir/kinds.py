"""Kinds of nodes: what each operation of a graph means."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernelwright.ir.attention import Attention
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.expr import Accumulator, Expr, walk
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import Dim


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of `forward`, tensor or Python scalar; no inputs."""

    argument: str
    """The parameter name in `forward`'s signature; `"xs[0]"` for an element of a list argument."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the module; no inputs."""

    path: str
    """Dotted path from the module, for example `"linear.weight"`."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that is neither parameter nor buffer; no inputs."""

    path: str | None
    """Dotted attribute path from the module when the constructor made it, else None."""
    values: tuple[float | int | bool, ...] = ()
    """Row-major elements when `forward` itself made it from literals (path is None)."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """One expression for every element; the inputs broadcast to the result by trailing dims."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Patches:
    """What a filter meets of images (N, H, W, channels), as rows of a matrix.

    Row (n, p, q) has the channels of pixel (p, q) * stride - padding of image n, then those
    `dilation` further along W for each of `taps[1]` taps, and so on along H; zeros where there is
    no pixel. How many rows an image has is in the shape of what is made of them.
    """

    taps: tuple[int, int]
    """The filter's, along H and W as the other pairs."""
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    rounds_from: int | None = None
    """Elements of images from which on, as at the captured sizes, float32 factors may be rounded to
    TF32 while the user lets cuDNN's convolutions round so; None: never."""

    @property
    def are_pixels(self) -> bool:
        """Whether each row is one pixel, and the next one its neighbour in memory."""
        return self.taps == self.stride == (1, 1) and self.padding == (0, 0)

    def __str__(self) -> str:
        height, width = self.taps
        pairs = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        usual = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        own = [f" {name} {a} x {b}" for name, (a, b) in pairs.items() if (a, b) != usual[name]]
        rounded = ", in TF32" if self.rounds_from is not None else ""
        return f"patches of {height} x {width}{','.join(own)}{rounded}"


@dataclass(frozen=True, slots=True)
class ByPlace:
    """A convolution is to be a product of patches."""

    rounds_from: int | None = None
    """`Patches.rounds_from` of that product."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Sum of products of two inputs, in Einstein notation with one letter for each dimension.

    A letter in both inputs and the result is a batch dimension; in both inputs only, it is summed
    over; in one input and the result, it is free. Every letter is one of these.
    """

    lhs: str
    rhs: str
    out: str
    patches: Patches | None = None
    """The first input is images, and `lhs` are the dimensions of their patches: a convolution by
    place, whose result has the shape (N, height, width, channels)."""

    def __str__(self) -> str:
        given = f", {self.patches}" if self.patches else ""
        return f"{self.equation}{given}"

    @property
    def equation(self) -> str:
        """The letters, as einsum takes them."""
        return f"{self.lhs},{self.rhs}->{self.out}"

    @property
    def may_round(self) -> bool:
        """Whether float32 factors may be rounded to TF32, at some sizes."""
        return self.patches is not None and self.patches.rounds_from is not None

    def factors(
        self, left: Sequence[Dim], right: Sequence[Dim], out: Sequence[Dim]
    ) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Sizes of the factors' dimensions, of the shapes of inputs and result."""
        return ((*out[:3], right[1]) if self.patches else tuple(left)), tuple(right)


class Reduction(StrEnum):
    """What becomes of the elements of a row; sums and moments of floats are in float32 or better.

    The totals of a row without elements are those that PyTorch gives.
    """

    SUM = "sum"
    PRODUCT = "product"
    MAXIMUM = "maximum"
    """NaN propagates, as it does in MINIMUM."""
    MINIMUM = "minimum"
    ANY = "any"
    ALL = "all"
    ARGMAX = "argmax"
    """I64: the first place of the largest element, NaN being largest, counted in row-major order
    over the reduced dimensions."""
    ARGMIN = "argmin"
    """I64: the first place of the smallest element, NaN being smallest, counted as for ARGMAX."""
    MOMENTS = "moments"
    """Two totals: the mean, and the sum of squared distances from it."""
    EXP_SUM = "exp_sum"
    """Two totals: the maximum m, and the sum of exp(x - m), every term 0 where m is -inf."""

    @property
    def totals(self) -> int:
        """How many values a row is reduced to; two are a TupleType."""
        return 2 if self in (Reduction.MOMENTS, Reduction.EXP_SUM) else 1


@dataclass(frozen=True, slots=True)
class Reduce:
    """Every row of the one input, the elements that differ in `dims` only, reduced to totals.

    The result keeps the reduced dimensions with size 1. Its element type is the input's (I64 for
    ARGMAX and ARGMIN; BOOL in and out for ANY and ALL); sums are of F32, F64 or I64.
    """

    op: Reduction
    dims: tuple[int, ...]
    """Ascending, counted from 0; none empty."""


class Accumulation(StrEnum):
    """How a running total grows."""

    SUM = "sum"
    PRODUCT = "product"


@dataclass(frozen=True, slots=True)
class Scan:
    """Running totals of the one input along a dimension, in the input's element type.

    Of F32, F64 or I64. Element i of the result is the total of elements 0 to i.
    """

    op: Accumulation
    dim: int
    reverse: bool = False
    """From the end: the total of elements i to the last."""
    exclusive: bool = False
    """Without element i itself: the neutral element comes first."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A value that is carried along the first dimension of the result, each element by itself.

    Element t of the result is `body` of element t - 1 and of elements t of the inputs. The first
    input stands before element 0, and has no such dimension; the others broadcast to the result by
    trailing dimensions.
    """

    body: Expr
    """One element: Operand 0 is the carried value, Operand i > 0 input i."""


class Pooling(StrEnum):
    """What becomes of the elements in a window."""

    MAXIMUM = "maximum"
    """NaN propagates; positions outside of the input do not count."""
    SUM = "sum"
    """Positions outside of the input are 0."""
    DOT = "dot"
    """The sum of products with weights, which are the second input: of each channel, the dimension
    before those that are pooled, one for each place of a window. Outside as for a sum."""
    DOT_LAST = "dot by channel"
    """DOT of channels that are the last of the pooled dimensions. A window has one element along
    it, and weights are (*size[:-1], channels)."""

    @property
    def has_weights(self) -> bool:
        """Whether the second input has weights."""
        return self in (Pooling.DOT, Pooling.DOT_LAST)


@dataclass(frozen=True, slots=True)
class Window:
    """Pooling over the last len(size) dimensions of the first input, in its element type.

    Element i of the result along such a dimension pools the positions
    i * stride - padding + j * dilation for 0 <= j < size. How many there are, ceil mode or not, is
    in the result's shape. 16-bit floats are summed in float32.
    """

    op: Pooling
    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


class TileMoments(StrEnum):
    """Whether a convolution's kernel writes the results of which it makes moments."""

    BESIDE = "beside the results"
    ALONE = "in place of the results"


@dataclass(frozen=True, slots=True)
class TileReduction:
    """What becomes of a convolution's results in its kernel; they are not written themselves.

    A step for each of them, then a reduction over windows that lie side by side, then one over
    channels. The node's result has this shape divided by the windows, and one channel where
    channels are reduced and none of them has a result of its own.

    With `moments` the node has several results instead, after the step: the results themselves
    where they are written, then of each channel of an image the mean and the sum of squared
    distances from it, of the shape (images, channels, 1, ...).
    """

    shape: tuple[Dim, ...]
    """Sizes of the convolution's results."""
    value: Expr
    """The step, from the Accumulator and Operands: indices into the node's inputs."""
    operands: int
    """How many inputs of the node, the last ones, the step reads: each has one value in all, or one
    for each channel."""
    is_whole: bool
    """Whether only whole windows count, and the rest is left out; else the last ones may be
    parts."""
    window: tuple[int, ...]
    """Results along each dimension that is convolved; 1: they stay apart."""
    over_windows: Reduction | None
    over_channels: Reduction | None
    result: Expr | None = None
    """What the channels' Totals become, and with them each channel's Accumulator where it reads
    that; None: the only total."""
    moments: TileMoments | None = None

    @property
    def keeps_channels(self) -> bool:
        """Whether each channel has a result."""
        return self.result is not None and any(
            isinstance(part, Accumulator) for part in walk(self.result)
        )


@dataclass(frozen=True, slots=True)
class Conv:
    """Convolution of the first input with the second; the third, if any, is a bias by channel.

    The last `len(stride)` dimensions of the input are convolved; its channels come before them, and
    a batch or nothing before those. A weight is (out channels, channels / groups, *taps), and
    (channels, out channels / groups, *taps) where `transposed`. Element p of the result sums the
    input's elements p * stride - padding + tap * dilation; what lies outside is 0. Transposed,
    element p of the input adds to those elements of the result. Sizes of the result are its type's:
    they tell an output padding, and a padding that is wider behind than in front.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    """Zeros in front of each dimension."""
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    why: str | None = None
    """Why the library does it, where it could have been a matrix product."""
    rounding: Rounding | None = None
    """Where a kernel of ours does it: what that may round to."""
    channels_last: tuple[int, ...] | None = None
    """Sizes at which the library computes it on a channels-last operand. At others the user's call
    is, on the last of the node's `inputs`. Its result is channels-last at all sizes."""
    reduction: TileReduction | None = None
    """What its kernel makes of the results, where it does not write them."""
    by_place: ByPlace | None = None
    """Where it is to be a product of patches: of two dimensions, without groups."""

    @property
    def operands(self) -> int:
        """Inputs of the node behind data, weight and bias."""
        planned = self.channels_last is not None
        return planned + (self.reduction.operands if self.reduction else 0)


@dataclass(frozen=True, slots=True)
class Gather:
    """Slices of the first input, picked by the second: integers in place of dimension `dim`.

    The result's shape is source.shape[:dim] + index.shape + source.shape[dim + 1:]; negative
    indices count from the end, others out of range are an error on the device, as in PyTorch.
    """

    dim: int


@dataclass(frozen=True, slots=True)
class Concat:
    """The inputs one after the other along a dimension."""

    dim: int


@dataclass(frozen=True, slots=True)
class Write:
    """The first input with the second in its places `start` to `stop` of one dimension."""

    dim: int
    start: Dim
    stop: Dim
    path: str | None = None
    """The argument or buffer that the first input is, where that is written in place: the result is
    the same memory, and nothing reads what it was. None: the result is a tensor of its own."""


@dataclass(frozen=True, slots=True)
class Pad:
    """The one input with a constant around it; a negative width cuts off."""

    before: tuple[int, ...]
    """For every dimension."""
    after: tuple[int, ...]
    value: float | int | bool


@dataclass(frozen=True, slots=True)
class Permute:
    """Dimension i of the result is dimension dims[i] of the input."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Elements in row-major order under the result's shape (a copy where it must be)."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Broadcast by trailing dimensions to the result's shape, with stride 0."""


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """Insert a dimension of size 1 before `dim` (0 <= dim <= rank)."""

    dim: int


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Remove the dimensions `dims`, all of size 1."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements start, start+step, ... before stop of one dimension; bounds already in range."""

    dim: int
    start: Dim
    stop: Dim
    step: int


@dataclass(frozen=True, slots=True)
class Select:
    """One index of one dimension, which disappears."""

    dim: int
    index: Dim


@dataclass(frozen=True, slots=True)
class Flip:
    """Reverse the dimensions `dims` (PyTorch copies; a kernel reads backwards)."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Roll:
    """Moved along dimensions, one after the other, what leaves at one end coming in at the other.

    Along dims[n] element i is element i - shifts[n] of the input, modulo the size. PyTorch copies.
    """

    shifts: tuple[Dim, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DiagEmbed:
    """A vector (..., n) on the main diagonal of zero matrices (..., n, n)."""


@dataclass(frozen=True, slots=True)
class Diagonal:
    """The main diagonal (..., n) of matrices (..., n, n)."""


ViewMap = (
    Permute
    | Reshape
    | Expand
    | Unsqueeze
    | Squeeze
    | Slice
    | Select
    | Flip
    | Roll
    | DiagEmbed
    | Diagonal
)


@dataclass(frozen=True, slots=True)
class View:
    """An index map of one input: no arithmetic."""

    map: ViewMap


@dataclass(frozen=True, slots=True)
class Relayout:
    """The one input in memory of its own, in the layout of the node's type. No kernel that reads it
    computes it on the way."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """An ATen call left to PyTorch: the node's `origin` is the call."""

    mutates: tuple[str, ...] = ()
    """Paths of the buffers the call changes in place."""
    random: bool = False
    """Draws random numbers: calls of this kind keep their order."""
    why: str | None = None
    """Why no kernel of ours does it, where ours could do other calls of the operator."""


@dataclass(frozen=True, slots=True)
class Project:
    """Item `index` of an input of TupleType."""

    index: int


Kind = (
    Input
    | Parameter
    | Constant
    | Pointwise
    | Contract
    | Reduce
    | Scan
    | Loop
    | Window
    | Conv
    | Recurrent
    | Attention
    | Gather
    | Concat
    | Write
    | Pad
    | View
    | Relayout
    | Opaque
    | Project
)


def changes(kind: Kind) -> tuple[str, ...]:
    """Paths of the arguments and buffers that an operation changes in place."""
    match kind:
        case Opaque(mutates=paths):
            return paths
        case Write(path=str(path)):
            return (path,)
    return ()
