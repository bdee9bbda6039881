"""Element types, symbolic sizes and the types of values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class DType(Enum):
    """Element type of a tensor; the value is its short name in printed graphs."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"
    C64 = "c64"
    C128 = "c128"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """True for real floating-point types."""
        return self in (DType.F64, DType.F32, DType.F16, DType.BF16)

    @property
    def is_complex(self) -> bool:
        """True for complex types, which no kernel of ours takes."""
        return self in (DType.C64, DType.C128)


_ITEMSIZE = {
    DType.F64: 8,
    DType.F32: 4,
    DType.F16: 2,
    DType.BF16: 2,
    DType.I64: 8,
    DType.I32: 4,
    DType.I16: 2,
    DType.I8: 1,
    DType.U8: 1,
    DType.BOOL: 1,
    DType.C64: 8,
    DType.C128: 16,
}


@dataclass(frozen=True, slots=True)
class Dim:
    """A size: a Python integer expression over the graph's symbols, and its captured value."""

    text: str
    """`"4096"` for a static size, otherwise an expression such as `"s0"` or `"2*s0 + 1"`."""
    hint: int
    """The value at capture; equal to `int(text)` for a static size."""

    @classmethod
    def static(cls, value: int) -> "Dim":
        """The size that is always `value`."""
        return cls(str(value), value)

    @property
    def is_static(self) -> bool:
        """True when the size is the same in every call."""
        return self.text == str(self.hint)

    def __str__(self) -> str:
        return self.text


def broadcast(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that operands of these shapes broadcast to."""
    one = Dim.static(1)
    rank = max(map(len, shapes), default=0)
    padded = [(*[one] * (rank - len(shape)), *shape) for shape in shapes]
    sizes = zip(*padded, strict=True)
    return tuple(next((size for size in column if size != one), one) for column in sizes)


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of a dense tensor's dimensions in memory; its alignment is known at call time."""

    order: tuple[int, ...]
    """The dimension with the largest stride first, the one that neighbours lie along last."""

    @classmethod
    def channels_last(cls, rank: int) -> "Layout":
        """The channels, dimension 1, innermost."""
        return cls((0, *range(2, rank), 1))


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: element type, shape and layout."""

    dtype: DType
    shape: tuple[Dim, ...]
    layout: Layout | None = field(default=None, compare=False)
    """None: row-major, as kernels write, or the caller's choice: kernels read any strides and are
    planned for row-major ones. Tensors of equal types have the same elements in any layout."""

    @property
    def is_transposed(self) -> bool:
        """Whether neighbours in memory are known to lie along another dimension than the last."""
        return self.layout is not None and self.layout.order[-1] != self.rank - 1

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel_hint(self) -> int:
        """Number of elements at the captured sizes."""
        count = 1
        for dim in self.shape:
            count *= dim.hint
        return count

    @property
    def bytes_hint(self) -> int:
        """Bytes at the captured sizes."""
        return self.numel_hint * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(str(dim) for dim in self.shape)}]"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A Python scalar known only at call time: F64 for float, I64 for int, BOOL for bool."""

    dtype: DType

    def __str__(self) -> str:
        return f"scalar {self.dtype.value}"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several results of one call; take one out with a Project node."""

    items: "tuple[ValueType, ...]"

    def __str__(self) -> str:
        return f"({', '.join(str(item) for item in self.items)})"


@dataclass(frozen=True, slots=True)
class NoneType:
    """No value: an unused optional result of a call, or a call made for its effect."""

    def __str__(self) -> str:
        return "none"


ValueType = TensorType | ScalarType | TupleType | NoneType


def one_for_each_line(inputs: Sequence[ValueType], output: TensorType) -> int:
    """A bit for each tensor among `inputs`: one element of it belongs to a line of the output.

    A line is what lies along the last dimension. 0 where there is no such tensor, or where one is
    neither that nor as large as the output.
    """
    lines = (*output.shape[:-1], Dim.static(1))
    shapes = [kind.shape for kind in inputs if isinstance(kind, TensorType)]
    ones = [shape == lines or all(size == lines[-1] for size in shape) for shape in shapes]
    if output.shape in ((), lines) or not all(
        one or shape == output.shape for one, shape in zip(ones, shapes, strict=True)
    ):
        return 0
    return sum(one << at for at, one in enumerate(ones))


def extents(kind: ValueType) -> tuple[str, ...]:
    """Sizes other than 1 of a tensor, as text."""
    if not isinstance(kind, TensorType):
        return ()
    return tuple(dim.text for dim in kind.shape if dim.text != "1")
