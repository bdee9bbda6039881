"""Rates of matrix products, on the CUDA cores and on tensor cores."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCoreRates:
    """The model of products on CUDA cores (gemm_simt.cuh)."""

    least_threads: int
    """Fewest threads of a block: with fewer, schedulers are idle."""
    most_threads: int
    """Most threads of a block: with more, registers run out."""
    thread_registers: int
    """Most registers of a thread by the estimate, which leaves a few for what it does not see."""
    other_registers: int
    """Registers of a thread for addresses and places, besides sums and fragments."""
    hiding_threads: int
    """Threads of a multiprocessor that hide its latencies."""
    shared_read: float
    """Share of a multiply-add that reading a fragment costs, per row or column of a thread."""
    global_load: float
    """Share of a multiply-add that loading a tile costs, per row or column of a block."""
    barrier: float
    """Share of a multiply-add that a barrier costs, per element of K of a step."""
    two_stages: float
    """Share of a multiply-add that waiting costs with two pipeline stages."""
    store_share: float
    """Share of the write bandwidth at which blocks store their results, all at about one time."""
    card_share: float
    """Share of the multiprocessors that a variant's tiles have to fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRates:
    """The model of tiles that each belong to one warpgroup (`Feed.TURNS`, gemm_sm90_turns.cuh)."""

    share: float
    """Cycles of a step of K over those of its multiplications."""
    narrow: float
    """Factor on it for tiles of 128 columns: more of them come from shared memory."""
    bytes: float
    """Bytes of operands that a multiprocessor gets in a cycle, what blocks share counted once for
    all of them."""
    shared: float
    """Factor on what it waits for them where the blocks of a cluster share some."""
    tile_cycles: float
    """Cycles of a tile besides its steps, when another begins."""
    result_cycles: float
    """Cycles in which a warpgroup stores 64 results, one of each row."""
    extra: float
    """Share of these cycles more for each tensor of the result's size that joins it."""
    short: float
    """Factor on them for tiles of few steps, which wait for what joins their results."""
    shifted: float
    """Factor on them for rows that begin between aligned runs of results."""
    begin_cycles: float
    """Cycles until a block's first stages have come, which no tile before hides."""
    cluster_cycles: float
    """Cycles more where blocks of a cluster begin and end together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupRates:
    """The model of products on tensor cores by warpgroups (gemm_sm90.cuh)."""

    clock: float
    """Hertz of multiprocessors whose tensor cores are busy: power, not the rated clock, decides."""
    step_cycles: Mapping[tuple[int, int], float]
    """Cycles of a step of 64 along K for a tile of 128 rows, by the 16-bit products for each
    product and by the columns of the tile."""
    many_narrow: float
    """Factor on a step of tiles of 64 columns of 16 bits on half the multiprocessors or more: their
    operands come from the L2, which all of them read."""
    copy_cycles: float
    """Cycles from asking for a stage until it is there: as many stages as there are share them."""
    patch_row_cycles: float
    """Cycles of a multiprocessor for a row of 128 bytes of a step, where each tap of a convolution
    brings its pixels from the L2 again."""
    missing_row_cycles: float
    """Cycles for such a row that the right factor does not have: zeros take longer."""
    short_tile_cycles: float
    """Cycles of a tile of few steps besides them and its stores: it waits for both in turn."""
    band_tap_cycles: Mapping[int, float]
    """Cycles of a tap of a step whose taps share pixels, by the columns of the tile."""
    resident_share: float
    """Least share of a tile's cycles that each of several blocks on a multiprocessor takes."""
    inside_step_cycles: float
    """Cycles of a step where other warps of the block split both operands meanwhile."""
    tile_cycles: float
    """Cycles of the end of a 128 x 128 tile whose results its own warps store."""
    buffered_tile_cycles: float
    """Cycles of the end of such a tile whose results asynchronous copies store."""
    unaligned_tile_cycles: float
    """Cycles of the end of such a tile of floats whose rows begin between two vectors."""
    joined_edge_cycles: float
    """Cycles of a tile of float32 results with an edge, beside others, where operands join it."""
    cluster_tile_cycles: float
    """Cycles of a tile more when the blocks of a cluster wait for each other."""
    two_stages: float
    """Factor on a step with two pipeline stages."""
    unshared: float
    """Factor on a step of blocks that do not share their reads in clusters."""
    converting: float
    """Factor on a step, and on storing, when those who multiply split an operand, too."""
    transposed: float
    """Factor on the end of a tile whose rows are columns of the result."""
    clusters_of_four: float
    """Share of the multiprocessors that clusters of four blocks find."""
    operand_share: float
    """Share of the copy bandwidth at which operands are read."""
    few_rows_share: float
    """Share of it for 16-bit operands where half of a tile's rows or more are empty."""
    store_share: float
    """Share of the write bandwidth of a result that takes longer to store than to compute."""
    buffered_store_share: float
    """Share of the write bandwidth of such a result by asynchronous copies."""
    narrow_store: float
    """Factor on storing from tiles of 64 columns."""
    least_seconds: float
    """Least seconds of a float32 product besides its tiles: launches, splitting, a cold L2."""
    split_bandwidth: float
    """Bytes a second of the kernel that splits fp32 operands: 4 read, 4 written per element."""
    ahead_elements: int
    """Elements that idle warps of a block split in a step (`AHEAD_OF_STEP`, gemm_sm90_cut.cuh)."""
    buffered_k: int
    """Largest K for which a buffer for results is worth a pipeline stage."""
    turns: TurnRates
    """Rates of convolutions and of TF32, where warpgroups take turns."""
    short_turns: TurnRates
    """Rates of plain products of 16 bits, likewise."""
    short_step: float
    """Factor on a step of plain products of 16 bits whose warpgroups share tiles."""
    short_tile: float
    """Factor on the end of their tiles."""
    short_extra: float
    """Share of it more for each tensor of the result's size that joins it."""
    cycle_products: int
    """16-bit multiplications of a multiprocessor's tensor cores in a cycle."""
    slice_k: int
    """Least K of a slice: less is not worth another sum."""
    least_products: int
    """Multiplications for which tensor cores are worth their launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinRates:
    """The model of products with few rows or columns (gemm_thin.cuh)."""

    read_share: float
    """Share of the read bandwidth that such a product reaches."""
    arithmetic_share: float
    """Share of the CUDA cores' rate with so many rows that memory no longer limits it."""
    flight_bytes: int
    """Bytes in flight on a multiprocessor that reach the bandwidth of memory."""
    most_rows: int
    """Most rows, or columns, of one tile."""
    tiled_rows: int
    """Rows of a tile, where there are more than one."""
    most_row_tiles: int
    """Most of these tiles for which the kernel is worth compiling."""
    tiled_share: float
    """Share of the CUDA cores' rate with tiles of rows."""
    tiled_seconds: float
    """Seconds more with tiles of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewRates:
    """The model of 16-bit products with few rows by tensor cores (gemm_few.cuh)."""

    read_share: float
    """Share of the bandwidth of reading."""
    cache_bandwidth: float
    """Bytes a second of all multiprocessors from the L2 cache."""
    step_seconds: float
    """Seconds that a block waits for what its warps load at once."""
    lone_share: float
    """Part of the read share where a multiprocessor has one block, which waits at each turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManySmallRates:
    """The model of thousands of small products, ours and the library's."""

    least_batches: int
    """Products from which on blocks that wait for memory overlap."""
    most_result: int
    """Most elements of a result."""
    most_tiled_result: int
    """Most elements of a result of which these tiles compute parts; cuBLAS was not measured beyond
    `most_result`."""
    most_k: int
    """Largest K."""
    tensor_core_seconds: float
    """Seconds of a multiprocessor for a tile on the tensor cores with so few steps of K."""
    life_seconds: float
    """Seconds of a block from its launch on: it waits for its operands once."""
    store_seconds: float
    """Seconds more for each 16 bytes of the result that a thread stores."""
    read_seconds: float
    """Seconds more for each 16 bytes that its epilogue reads."""
    access_seconds: float
    """Seconds of a multiprocessor for 32 accesses that copy operands to shared memory: of 16 bytes
    where rows lie along M or N, of one element elsewhere."""
    shared_read: float
    """Share of a multiply-add that reading a fragment costs, per row or column of a thread."""
    bandwidth_share: float
    """Share of the copy bandwidth that these tiles reach where enough of them are under way."""
    thin_life_seconds: float
    """Seconds of a block of the product with few rows."""
    library_share: float
    """Share of the copy bandwidth at which cuBLAS multiplies matrices of multiples of 16."""
    library_side: int
    """Rows and columns to a multiple of which cuBLAS rounds up."""
    library_result: int
    """Elements of a result below which cuBLAS gets no faster."""
    library_unaligned: float
    """Factor where vectors of cuBLAS's larger operand or of its result are not aligned."""
    library_along_k: float
    """Factor with few rows when cuBLAS's right operand lies along K."""
    library_copy_share: float
    """Share of the copy bandwidth at which PyTorch copies an operand whose batch is not one
    dimension."""
    margin: float
    """How many times faster than the library ours has to be by these models."""
