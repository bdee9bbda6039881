"""Tunables of the kernel families: what a plan fixes before there is any text."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kernelwright.ir.attention_configs import AttentionConfig
from kernelwright.ir.conv_configs import ConvConfig, DirectConfig
from kernelwright.ir.joint import JointConfig
from kernelwright.ir.loop_configs import LoopConfig
from kernelwright.ir.recurrent_configs import RecurrentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseConfig:
    """Tunables of kernels that make each element by itself: pointwise ones and gathers."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that one access moves."""
    unroll: int
    """Vectors that each thread has in flight."""

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.unroll} accesses of {self.width} elements each"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRows:
    """Rows of neighbours in memory that a team of threads holds on chip, copied in ahead."""

    threads: int
    """Threads of a block."""
    team: int
    """Threads of a block that share a row: a warp, or all."""
    cluster: int
    """Blocks that share a row, if all threads of each do."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread holds of each row."""
    stages: int
    """Rows under way at once."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        who = f"{self.threads} threads" if self.team > 32 else "a warp"
        if self.cluster > 1:
            who = f"clusters of {self.cluster} blocks of {who}"
        return (
            f"rows on chip, {who} for each; {self.vectors} vectors of {self.width} elements a "
            f"thread, {self.stages} rows under way"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows(RingRows):
    """A ring of one stage, and a row in registers: the stage takes the next one meanwhile."""

    def __str__(self) -> str:
        return f"{RingRows.__str__(self)}, one more in registers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRows:
    """Long rows of neighbours in memory, cut in parts that blocks walk one after the other."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    unroll: int
    """Vectors of that width that a thread has in flight."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        return (
            f"rows in parts, {self.threads} threads for each; {self.unroll} vectors of "
            f"{self.width} elements a thread in flight"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRows:
    """Rows of neighbours in memory that all blocks of the card hold on chip, chunk by chunk."""

    fold_warps: int
    """Warps of a block that fold."""
    finish_warps: int
    """Warps of a block that write results."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread finishes of a chunk at most."""
    ring: int
    """Bytes of chunks that a block holds."""

    @property
    def threads(self) -> int:
        """Threads of a block: of these warps, of one that copies and of one that exchanges."""
        return 32 * (2 + self.fold_warps + self.finish_warps)

    def __str__(self) -> str:
        return (
            f"rows on chip, all blocks of the card for each; {self.ring // 1024} KB of each in "
            f"chunks of {32 * self.finish_warps * self.vectors} vectors of {self.width} elements, "
            f"{self.fold_warps} warps that fold and {self.finish_warps} that finish"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRows:
    """Rows whose elements lie apart, beside their neighbours': threads stand at different rows."""

    lanes: int
    """Threads of a block at neighbouring rows."""
    split: int
    """Threads of a block that share a row."""
    width: int
    """Neighbouring rows of a thread."""
    vectors: int
    """Places of its rows that a thread has in flight."""
    holds: bool
    """Whether these are all of its places, kept in registers."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        held = "held in registers" if self.holds else "in flight"
        return (
            f"{self.lanes} lanes along {self.width} neighbouring rows each, {self.split} threads "
            f"for a row; {self.vectors} places a thread {held}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPartRows(ColumnRows):
    """Few and long ones of such rows, cut in parts: kernels of states, of totals, of results."""

    joined: bool = False
    """Whether the kernel of results makes the totals: of rows that the L2 cache holds."""

    def __str__(self) -> str:
        end = ", which make the totals" if self.joined else ""
        return f"rows in parts{end}, {ColumnRows.__str__(self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRows:
    """Rows of neighbours in memory, several for each warp or one for a block, held in registers."""

    threads: int
    """Threads of a block."""
    lanes: int
    """Threads that share a row."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread has of its row."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        who = "a thread" if self.lanes == 1 else f"{self.lanes} threads"
        return (
            f"rows in registers, {who} for each; {self.vectors} vectors of {self.width} elements a "
            "thread"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows:
    """Rows in one run of memory, or in short ones, a block for each, whose threads walk all runs as
    one."""

    threads: int
    """Threads of a block."""
    width: int
    """Neighbouring elements that a thread moves and computes together."""
    vectors: int
    """Vectors of that width that a thread has in flight."""
    holds: bool
    """Whether these are all of its vectors, kept in registers."""
    resident: int
    """Blocks on a multiprocessor at one time."""

    def __str__(self) -> str:
        held = "held in registers" if self.holds else "in flight"
        return (
            f"rows in blocks, {self.threads} threads for each; {self.vectors} vectors of "
            f"{self.width} elements a thread {held}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConfig:
    """Tunables of the row family."""

    multiprocessors: int
    """Multiprocessors of the card."""
    tuned: RingRows | PartRows | GridRows | ColumnRows | ShortRows | BlockRows | None = None
    """The variant for the captured sizes and layouts, beside the one for any."""
    streams: bool = False
    """Whether that loads inputs to leave the caches first: nothing is read twice."""

    def __str__(self) -> str:
        way = str(self.tuned or "rows of any length and layout")
        return f"{way}, which leave the caches first" if self.streams else way


class ScanWay(StrEnum):
    """Who has a row of a scan: the elements along the scanned dimension."""

    ROW_PER_BLOCK = "a block for each row"
    ROW_PER_WARP = "a warp for each row"
    ROW_IN_LANES = "a warp for each row, of which each lane has a run"
    COLUMNS = "a lane for each row"
    """Neighbours in memory are then elements of different rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    """Tunables of the scan family."""

    way: ScanWay
    width: int
    """Neighbouring elements that one access moves."""
    items: int
    """Accesses that a thread has in flight; twice as many with those of the next chunk."""
    warps: int
    """Warps of a block."""
    min_blocks: int = 0
    """With fewer rows than this, blocks share long rows."""
    stages: int = 0
    """Chunks of a row on their way to shared memory; 0: one, to registers."""
    resident: int | None = None
    """Blocks of a multiprocessor, where the registers are to be limited to what that leaves."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def row_warps(self) -> int:
        """Warps that share a row that lies in one run of memory."""
        return self.warps if self.way is ScanWay.ROW_PER_BLOCK else 1

    def __str__(self) -> str:
        each = f"{self.width} elements each" if self.width > 1 else "one element each"
        ahead = f", {self.stages} chunks ahead" if self.stages > 0 else ""
        return f"{self.way}, {self.items} accesses of {each}, {self.threads} threads{ahead}"


class WindowWay(StrEnum):
    """How the threads of a pooling kernel divide the work."""

    ELEMENTS = "each thread has an element"
    WALK = "each thread walks along its columns"
    """What a plane of the source gives stays in registers until the last window that it is in."""
    LINES = "each block has rows of the result"
    """Windows are pooled over all dimensions but the last, and then along shared memory."""
    TILES = "each block has planes, or a band of one"
    """They come to shared memory as one run of memory, whatever the lengths of rows."""
    FLAT = "each thread has elements of the result"
    """Planes are runs of memory; what windows share comes from the cache."""
    BANDS = "each block has bands of planes in shared memory"
    """Threads go down their columns of a band; sums of a few rows of the result stay."""
    CHANNELS = "each thread has neighbouring channels"
    """Channels are last. Threads go down a few columns; the sums stay likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Tunables of the window family."""

    way: WindowWay
    threads: int
    """Threads of a block."""
    vector: int = 1
    """Elements of the source that one access moves."""
    outputs: int = 1
    """Neighbouring elements of the result that a thread (WALK, BANDS) or a block (LINES) has, or
    columns of them (CHANNELS)."""
    steps: int = 1
    """Elements along the walk that a thread has (WALK, BANDS, CHANNELS); accesses that it has in
    flight (LINES)."""
    blocks: int = 1
    """Blocks that a multiprocessor holds at least."""
    planes: int = 1
    """Planes of the source that a thread of a walk has in flight."""
    ahead: int = 0
    """Steps of a walk before its use that a plane is asked for."""
    shared: int = 0
    """Bytes of shared memory of a block (TILES), at most (BANDS)."""
    store: int = 1
    """Elements of the result that one access writes (BANDS)."""

    def __str__(self) -> str:
        match self.way:
            case WindowWay.ELEMENTS:
                return f"{self.way}, {self.threads} threads"
            case WindowWay.FLAT:
                return f"{self.way}: {self.outputs}, {self.threads} threads"
            case WindowWay.TILES:
                return f"{self.way}: {self.shared // 1024} KB, {self.threads} threads"
            case WindowWay.WALK:
                own = (
                    f"{self.outputs} columns and up to {self.steps} steps, {self.planes} planes in "
                    f"flight, the cache asked {self.ahead} steps ahead"
                )
            case WindowWay.LINES:
                own = f"{self.outputs} columns, {self.steps} accesses in flight"
            case WindowWay.BANDS:
                own = (
                    f"{self.outputs} columns and up to {self.steps} rows for a thread, stores of "
                    f"{self.store}"
                )
            case WindowWay.CHANNELS:
                own = f"{self.outputs} columns and up to {self.steps} rows"
        each = f"{self.vector} elements each" if self.vector > 1 else "one element each"
        return f"{self.way}: {own}, accesses of {each}, {self.threads} threads"


Config = (
    PointwiseConfig
    | ProductConfig
    | ConvConfig
    | DirectConfig
    | JointConfig
    | RowConfig
    | ScanConfig
    | LoopConfig
    | WindowConfig
    | RecurrentConfig
    | AttentionConfig
)
