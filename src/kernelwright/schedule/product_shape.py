"""The product that a contraction is: sizes, memory of its factors, and what its epilogue reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from kernelwright.ir.anchors import Triangle
from kernelwright.ir.kinds import Contract, Patches, Reduction
from kernelwright.ir.product_configs import Major, TensorCoreConfig
from kernelwright.ir.types import DType, TensorType, ValueType
from kernelwright.machine import Machine
from kernelwright.schedule.gemm_work import contraction_sizes
from kernelwright.schedule.roles import Roles, roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One side of a product."""

    elements: int
    """Each counted once, however often it is repeated."""
    major: Major
    is_aligned: bool
    """Its rows, if it is contiguous, start at multiples of 16 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """A product of the captured sizes, as the launcher sees it."""

    batches: int
    m: int
    n: int
    k: int
    dtype: DType
    """Element type of the operands."""
    lhs: Factor
    rhs: Factor
    bytes: int
    """Factors and result, each moved once."""
    triangle: Triangle | None = None
    """The part of the result that is not set to zero."""
    extras: int = 0
    """Tensors of the result's size that its epilogue reads."""
    joined: int = 0
    """Tensors of any size that it reads."""
    rounds: bool = False
    """Whether float32 factors may be rounded to TF32."""
    kept: Reduction | None = None
    """What a row of the result is reduced to before anything is written."""
    pairs: bool = False
    """Whether the left factor comes in pairs (`Kernel.pairs`)."""
    apart: int = 1
    """Batches, of all, that share a right factor and whose rows do not lie together."""
    taps: int = 1
    """Parts of K, each of which begins with a step of its own."""
    reach: int = 0
    """Padded pixels from the first to the last of taps that can share them."""
    padded: int = 0
    """Padded pixels of all images, likewise."""

    @property
    def copied(self) -> "ProductShape":
        """The product as PyTorch computes it: of a copy, where rows do not lie together."""
        batches, m = self.batches // max(1, self.apart), self.m * self.apart
        return replace(self, batches=batches, m=m, apart=1)

    def together(self, count: int) -> "ProductShape":
        """So many of these products in one launch, which share the left factor."""
        others = (count - 1) * (self.bytes - self.lhs.elements * self.dtype.itemsize)
        return replace(
            self,
            batches=self.batches * count,
            rhs=replace(self.rhs, elements=self.rhs.elements * count),
            bytes=self.bytes + others,
        )

    def are_many_small(self, machine: Machine) -> bool:
        """Whether the library's and our time was measured for thousands of products like these."""
        small = self.m * self.n <= machine.many_small.most_result
        return small and self.have_small_tiles(machine)

    def have_small_tiles(self, machine: Machine) -> bool:
        """Whether small tiles are worth a try: a product is over before a pipeline has filled."""
        known = machine.many_small
        small = self.m * self.n <= known.most_tiled_result and self.k <= known.most_k
        return small and self.batches >= known.least_batches and self.dtype is DType.F32

    @property
    def is_short(self) -> bool:
        """Whether the factors have 16 bits and neither is patches."""
        return self.taps == 1 and self.dtype is not DType.F32

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.batches * self.m * self.n * self.k

    @property
    def result_bytes(self) -> int:
        """Bytes that are written."""
        columns = self.n if self.kept is None else 1
        return self.batches * self.m * columns * self.dtype.itemsize

    def sides(self, config: TensorCoreConfig) -> tuple[Factor, Factor]:
        """The factors as they stand in the product that the config computes."""
        return (self.rhs, self.lhs) if config.transposed else (self.lhs, self.rhs)

    def steps(self, config: TensorCoreConfig) -> int:
        """Steps along K."""
        return self.taps // config.taps * ceil(self.k // self.taps / config.block_k)

    def tiles(self, block_m: int, block_n: int) -> int:
        """Tiles of that size that cover the result."""
        return self.batches * ceil(self.m / block_m) * ceil(self.n / block_n)


def product_shape(
    anchor: Contract,
    inputs: Sequence[ValueType],
    output: TensorType,
    triangle: Triangle | None = None,
    kept: Reduction | None = None,
) -> ProductShape:
    """The product that a contraction of these types is at the captured sizes."""
    found = roles(anchor)
    assert isinstance(found, Roles)
    lhs, rhs = reversed(inputs[:2]) if found.swapped else inputs[:2]
    assert isinstance(lhs, TensorType) and isinstance(rhs, TensorType)
    sizes = contraction_sizes(anchor, inputs, output)
    own = [letter for letter in found.batch if letter in found.right]
    # Batches that share the right factor are rows, as the launcher makes them where memory allows:
    # the last ones, as far as they stand together in the left factor and in the result.
    left, out, rows = (
        "".join(letter for letter in word if sizes[letter] != 1)
        for word in (found.left, anchor.out, found.batch + found.m)
    )
    rows = "".join(letter for letter in rows if letter not in found.right)
    at = next(at for at in range(len(rows) + 1) if rows[at:] in left and rows[at:] in out)
    apart = prod(sizes[letter] for letter in rows[:at])
    chunk = 16 // lhs.dtype.itemsize
    k = sizes[found.k]

    def factor(letters: str, kind: TensorType, major: Major) -> Factor:
        aligned = sizes[letters[-1]] % chunk == 0
        return Factor(elements=kind.numel_hint, major=major, is_aligned=aligned)

    reach, padded = _shared_pixels(anchor.patches, output)
    return ProductShape(
        batches=apart * prod(sizes[letter] for letter in own),
        m=prod(sizes[letter] for letter in rows[at:]),
        n=sizes[found.n],
        k=k,
        dtype=lhs.dtype,
        lhs=factor(found.left, lhs, found.left_major),
        rhs=factor(found.right, rhs, found.right_major),
        bytes=lhs.bytes_hint + rhs.bytes_hint + output.bytes_hint,
        triangle=triangle,
        kept=kept,
        extras=sum(
            isinstance(kind, TensorType) and kind.numel_hint == output.numel_hint
            for kind in inputs[2:]
        ),
        joined=sum(isinstance(kind, TensorType) for kind in inputs[2:]),
        rounds=anchor.may_round,
        apart=apart,
        taps=1 if anchor.patches is None else prod(anchor.patches.taps),
        reach=reach,
        padded=padded,
    )


def _shared_pixels(patches: Patches | None, output: TensorType) -> tuple[int, int]:
    """Reach and count of pixels that taps share; 0 where patches begin further apart."""
    if patches is None or patches.stride != (1, 1) or prod(patches.taps) == 1:
        return 0, 0
    pairs = zip(patches.taps, patches.dilation, strict=True)
    down, across = ((taps - 1) * dilation for taps, dilation in pairs)
    images, height, width, _ = (dim.hint for dim in output.shape)
    padded = width + across
    return down * padded + across, images * (height + down) * padded
