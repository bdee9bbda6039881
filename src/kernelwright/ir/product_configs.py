"""How kernels of matrix products are made: tiles, steps, and how factors come."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConfig:
    """Tunables of the CUDA-core matrix product: tile sizes in elements."""

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    stages: int
    """Shared-memory buffers along K."""
    promote_k: int = 512
    """Products summed in one register before they join the second sum."""
    min_tiles: int = 0
    """With fewer tiles than this the launcher takes the small variant."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __str__(self) -> str:
        return (
            f"tile {self.block_m}x{self.block_n}x{self.block_k}, {self.thread_m}x{self.thread_n} "
            f"a thread, {self.stages} stages, {self.threads} threads"
        )


class Feed(StrEnum):
    """How the factors of a product come to the tensor cores."""

    SPLIT = "split"
    """float32: a kernel before writes every element of both as two fp16 numbers."""
    AHEAD = "ahead"
    """float32, as SPLIT of a part of both: while a first launch multiplies that, idle
    warps of its own split what a second one reads."""
    PAIRED = "paired"
    """float32, as SPLIT: but the kernel before writes the left one so (`Kernel.pairs`)."""
    CONVERT = "convert"
    """float32: a kernel before splits the right one; the left one is split tile by tile, by who
    multiplies."""
    INSIDE = "inside"
    """float32: no kernel before, and no memory: warps of the product split both, each block of a
    cluster of four a half of what two of them share."""
    DIRECT = "direct"
    """float16 and bfloat16, as they are; float32, rounded to TF32 on the way from memory."""
    TURNS = "turns"
    """Factors as DIRECT has them, by two warpgroups with tiles of their own: one multiplies while
    the other stores."""
    BAND = "band"
    """Patches as DIRECT has them, whose taps share the pixels of a stage."""

    @property
    def is_direct(self) -> bool:
        """Whether each product of two elements is one on the tensor cores."""
        return self in (Feed.DIRECT, Feed.TURNS, Feed.BAND)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreConfig:
    """Tunables of the tensor-core matrix product."""

    block_n: int
    """Columns of a tile: 64, 128, 192 or 256; of TF32 16 or 32, too."""
    feed: Feed
    stages: int
    """Shared-memory buffers along K."""
    cluster: int
    """Blocks, one below another, that share what they read of the right factor: 1 or 2. With
    `Feed.INSIDE` 4: two rows of two."""
    slices: int = 1
    """Parts of K that different blocks sum."""
    transposed: bool = False
    """The factors change sides: the transpose of the result is computed."""
    min_products: int = 0
    """The launcher takes another variant for products with fewer multiplications than this."""
    resident: int = 1
    """Blocks of a multiprocessor at one time: of several, each has fewer registers and stages."""
    pixels: int = 0
    """Pixels of a stage (`Feed.BAND`)."""
    taps: int = 1
    """Taps of a stage, likewise."""
    least_ahead: int = 1 << 23
    """Elements of a factor: fewer are not worth a launch of their own (`Feed.AHEAD`)."""

    block_k: int = 64
    """Depth of a tile: 128 bytes of 16-bit numbers, or of TF32."""

    @property
    def block_m(self) -> int:
        """Rows of a tile: 64 of a warpgroup's own, where its sums leave no registers for 128."""
        return 64 if self.feed is Feed.TURNS and self.block_n > 128 else 128

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns that the blocks of a cluster compute together, before changing sides."""
        across = 2 if self.cluster == 4 else 1
        return self.block_m * (self.cluster // across), self.block_n * across

    def __str__(self) -> str:
        converted = "right" if self.transposed else "left"
        scheme = {
            Feed.SPLIT: "three fp16 tensor-core products",
            Feed.AHEAD: "three fp16 tensor-core products, a part of a factor split meanwhile",
            Feed.PAIRED: "three fp16 tensor-core products, the left factor in pairs before",
            Feed.CONVERT: f"three fp16 tensor-core products, the {converted} factor split in them",
            Feed.INSIDE: "three fp16 tensor-core products, both factors split in them",
            Feed.DIRECT: "one tensor-core product",
            Feed.TURNS: "one tensor-core product, warpgroups in turns",
            Feed.BAND: f"one tensor-core product, {self.taps} taps of {self.pixels} pixels",
        }[self.feed]
        rows, columns = (self.block_m, self.block_n)[:: -1 if self.transposed else 1]
        blocks = {2: ", clusters of two blocks", 4: ", clusters of four blocks"}
        shared = blocks.get(self.cluster, "")
        parts = f", K in {self.slices} parts" if self.slices > 1 else ""
        several = f", {self.resident} blocks a multiprocessor" if self.resident > 1 else ""
        tile = f"tile {rows}x{columns}x{self.block_k}"
        return f"{scheme}; {tile}, {self.stages} stages{shared}{parts}{several}"


class Major(StrEnum):
    """Along which dimension of a product a factor is contiguous: K, its own, or neither."""

    K = "K"
    MN = "MN"
    NONE = "NONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinConfig:
    """Tunables of the product with few rows or columns, which memory limits."""

    rows: int
    """Rows of a tile of the thin factor: 1, 2, 4, 8 or 16."""
    row_tiles: int = 1
    """Most tiles of rows: blocks of others than the first read the wide factor from the cache."""
    columns: int
    """Columns of a thread."""
    step: int
    """Elements along K that a thread loads at once for each of its columns."""
    threads: int
    """Threads of a block."""
    resident: int
    """Blocks on a multiprocessor at one time."""
    multiprocessors: int
    """Multiprocessors of the card."""
    wide: Major
    """How the factor lies that is not thin."""

    def __str__(self) -> str:
        rows = "one row" if self.rows == 1 else f"up to {self.rows} rows"
        if self.row_tiles > 1:
            rows = f"up to {self.row_tiles} tiles of {self.rows} rows"
        return (
            f"{rows} times a factor that is read once; {self.columns} columns x {self.step} of K "
            f"a thread, {self.resident} blocks of {self.threads} threads a multiprocessor"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FewConfig:
    """Tunables of the 16-bit product with up to 16 rows or columns, which memory limits."""

    groups: int
    """Groups of 8 columns that a block computes."""
    loads: int
    """Runs of 32 elements along K of each row and column that a warp has under way."""
    warps: int
    """Warps of a block, which share K."""

    ROWS: ClassVar[int] = 16
    RUN: ClassVar[int] = 32

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes."""
        return 8 * self.groups

    def __str__(self) -> str:
        return (
            f"up to {self.ROWS} rows times a factor that is read once, by tensor cores; "
            f"{self.columns} columns a block of {self.warps} warps, "
            f"{self.loads * self.RUN} of K a warp at once"
        )


ProductConfig = GemmConfig | TensorCoreConfig | ThinConfig | FewConfig
