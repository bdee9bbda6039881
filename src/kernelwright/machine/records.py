"""The records of a card: its limits, and the rates that our models of time are fitted with.

A field says what a number means and in which unit. Where a number was measured stands in the file
of the card, beside the number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kernelwright.machine.convolutions import ConvolutionRates


class Origin(Enum):
    """Where the rates of a `Machine` come from."""

    MEASURED = "measured"
    """By benchmarks on a card of that name."""
    MODELLED = "modelled"
    """From clocks, bus width and unit counts, and fits of the card that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What CUDA allows on a card, as the table of compute capabilities has it."""

    warp_threads: int
    """Threads of a warp."""
    block_threads: int
    """Most threads of a block."""
    sm_threads: int
    """Most threads that a multiprocessor holds."""
    sm_blocks: int
    """Most blocks that a multiprocessor holds."""
    thread_registers: int
    """Most 32-bit registers of a thread."""
    cluster_blocks: int
    """Most blocks of a cluster, those that are not portable included; 1 without clusters."""
    access_bytes: int
    """Bytes of the widest access of a thread."""
    static_shared_bytes: int
    """Shared memory of a block that need not be asked for, bytes."""
    reserved_shared_bytes: int
    """Shared memory that CUDA takes for each block, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRates:
    """What kernels cost whatever they do."""

    product_seconds: float
    """Seconds of a product of ours on top of what its tiles take."""
    next_seconds: float
    """Seconds of each kernel that comes before or after a product."""
    added_seconds: float
    """Seconds of a launch that replaces no call."""
    joined_seconds: float
    """Least seconds that joined tensors must save for their views to be worth it."""
    joined_run_bytes: int
    """Least bytes of a part between its neighbours: shorter ones are slow to write one by one."""
    stage_bytes: float
    """Least bytes of tensors whose reduction, or whose memory format, pays for one more launch."""
    stage_elements: int
    """Least elements of a row of the first of two stages."""
    transposed_bytes: float
    """Least bytes of an operand that is copied because it lies transposed in memory."""


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
    inside_step_cycles: float
    """Cycles of a step where other warps of the block split both operands meanwhile."""
    tile_cycles: float
    """Cycles of the end of a 128 x 128 tile whose results its own warps store."""
    buffered_tile_cycles: float
    """Cycles of the end of such a tile whose results asynchronous copies store."""
    unaligned_tile_cycles: float
    """Cycles of the end of such a tile of floats whose rows begin between two vectors."""
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
    turn_share: float
    """Cycles of a step of K where warpgroups take turns, over those of its multiplications."""
    turn_bytes: float
    """Bytes of operands that a multiprocessor gets in a cycle then, what blocks share counted once
    for all of them."""
    cycle_products: int
    """16-bit multiplications of a multiprocessor's tensor cores in a cycle."""
    turn_result_cycles: float
    """Cycles in which a warpgroup stores 64 results then, one of each row."""
    turn_begin_cycles: float
    """Cycles until a block's first stages have come, which no tile before hides."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ManySmallRates:
    """The model of thousands of small products, ours and the library's."""

    least_batches: int
    """Products from which on blocks that wait for memory overlap."""
    most_result: int
    """Most elements of a result."""
    most_k: int
    """Largest K."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRate:
    """The library's large products in one arithmetic."""

    share: float
    """Share of the arithmetic's rate that they reach."""
    tile_seconds: float
    """Seconds of a tile of 128 x 128 on a multiprocessor, on top of its multiplications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRates:
    """The model of cuBLAS and cuDNN, and how much of ours must be better."""

    call_seconds: float
    """Seconds of a product on top of what its tiles take."""
    bandwidth_share: float
    """Share of the copy bandwidth that it reaches with products that memory limits."""
    products: Mapping[str, LibraryRate]
    """cuBLAS by arithmetic, a key of `Machine.flops`."""
    convolutions: LibraryRate
    """cuDNN's convolutions of fp32 by the rate of TF32."""
    unaligned_short: float
    """Share of the arithmetic's rate that cuBLAS reaches in 16 bits where rows of an operand or of
    the result are no multiples of 16 bytes."""
    short_margin: float
    """How many times faster ours has to be in 16 bits where the library takes less than
    `short_seconds`."""
    short_seconds: float
    """Seconds from which on the model of 16-bit products is trusted as it is."""
    margin: float
    """How many times faster a modelled product of ours on tensor cores has to be."""
    known_seconds: float
    """Least seconds of the library's product for the model of ours on tensor cores to be trusted:
    shorter ones are launches and latencies."""
    tf32_channels: int
    """Fewest channels on both sides of a small float32 convolution of two dimensions that cuDNN
    computes in TF32 all the same."""
    tf32_odd_channels: int
    """Fewest channels of the operand of such a one of one tap on maps of no multiple of four."""
    tf32_strided_channels: int
    """Fewest channels of the operand of one of one tap with strides."""
    tf32_bytes: float
    """Bytes of operand and result from which that is known."""
    tf32_first_taps: int
    """Fewest taps of a strided float32 convolution of an image, a network's first one, that cuDNN
    computes in TF32."""
    tf32_first_channels: int
    """Most channels of that image."""
    tf32_first_results: int
    """Fewest channels of its result."""
    cut_seconds: float
    """Seconds of the host for a call between launches of ours, which are one native call without
    it."""
    k_seconds: float
    """Least seconds of a float32 product of few tiles for each step along K."""
    known_k: int
    """Most of these steps: longer ones are cut among blocks."""
    known_thin_seconds: float
    """Least seconds of the library's product for the model of ours with few rows to be trusted."""
    channels_last_channels: int
    """Fewest channels of a float32 input of a convolution: with fewer, cuDNN mostly computes in
    float32 on contiguous operands, and in TF32 on channels-last ones: less accurately than the
    reference."""
    channels_last_few: int
    """Channels of such an input of three dimensions that suffice for a result of few channels:
    TF32 on all operands."""
    channels_last_few_results: int
    """Most channels of that result."""
    channels_last_taps: int
    """Most elements of a transposed filter of three dimensions with which cuDNN gains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRates:
    """What rows need to be held on chip, and when that is worth it."""

    least_registers: int
    """Registers of a thread: with fewer, what is known of a row does not fit."""
    held_registers: int
    """Most registers of a thread that hold elements."""
    column_registers: int
    """Registers of a thread of columns besides elements and states."""
    holding_threads: int
    """Most threads of a block that hold a row in registers and compute with it."""
    column_elements: int
    """Most elements of a row that threads along its neighbours keep in registers."""
    block_bytes: int
    """Least bytes of a row that is worth a block of its own."""
    short_rows: int
    """Rows that keep the card busy with some on each warp."""
    many_rows: int
    """Rows that keep the card busy with one for each warp."""
    few_row_bytes: int
    """Least bytes of a few rows that are worth more than one block each."""
    busy_threads: int
    """Threads of a multiprocessor that short rows are spread over."""
    cached_row_bytes: int
    """Most bytes of a row that one block walks twice beside many others."""
    lone_row_bytes: int
    """Most bytes of a row that a block walks twice where there are few of them."""
    resident_blocks: int
    """Most blocks of a multiprocessor that are worth asking for."""
    exchange_bytes: int
    """Shared memory that is left for the exchange of states, bytes."""
    grid_bytes: int
    """Shared memory that is left where all blocks of the card hold a row, bytes."""
    grid_room: float
    """Rows that those hold at least: one is on its way while totals of another are exchanged."""
    grid_rows: int
    """Such rows that are worth it: nothing is written before the first one is there, and nothing
    read while the last one is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRates:
    """What poolings and convolutions of each channel need, and when walking is worth it."""

    flight_elements: int
    """Most elements of the source that a thread may have in flight."""
    busy_threads: int
    """Threads that a multiprocessor has at least before any walks further."""
    narrow_registers: int
    """Most registers for a plane and a window where a thread has 64 in all."""
    wide_threads: int
    """Threads of a multiprocessor where they need more."""
    other_registers: int
    """Registers of a thread for addresses and places."""
    thread_registers: int
    """Most registers of a thread by the estimate."""
    far_stride: int
    """Stride above which neighbouring threads read too far apart from one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRates:
    """What running totals need, and when a warp is enough; what loops over elements need."""

    read_seconds: float
    """Seconds from a read to its value while others read."""
    sm_blocks: int
    """Blocks that a multiprocessor is kept busy with."""
    warp_elements: int
    """Elements of a row up to which a warp scans it as fast as a block does."""
    lone_warp_elements: int
    """Elements of it where there are many rows."""
    many_rows: int
    """Rows that keep the card busy with a warp for each."""
    lean_width: int
    """Elements of a vector up to which registers are enough for the configured blocks where one
    input is read; else for two thirds of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRates:
    """The model of recurrent layers, ours (recurrent_sm90.cuh) and cuDNN's."""

    launch_seconds: float
    """Seconds before the first step: planes of the inputs, weights to registers."""
    step_seconds: Mapping[int, float]
    """Seconds of a step on top of its products, by the blocks of a cluster."""
    k_seconds: Mapping[int, float]
    """Seconds of 16 elements along the sums of a step, by the rows of a slice."""
    one_plane: float
    """Factor on products of 16-bit weights, one in place of three."""
    two_tiles: float
    """Factor on products of blocks with two tiles of rows."""
    clusters: Mapping[int, int]
    """Clusters that run at one time, by their blocks."""
    library_lstm_seconds: float
    """Seconds of cuDNN's step of an LSTM layer's direction."""
    library_gru_seconds: float
    """Seconds of its step of a GRU layer's direction."""
    library_small_hidden: int
    """Most hidden units with which cuDNN takes all steps of a layer in one kernel, twice as many of
    plain RNN cells."""
    library_small_seconds: float
    """Seconds of a step of that kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """The model of attention by bytes of an element, ours (attention_sm90.cuh) and PyTorch's."""

    launch_seconds: Mapping[int, float]
    """Seconds of the launches and of blocks that begin."""
    flops: float
    """FLOP/s of both products of a head in float32, those of masked scores not counted."""
    narrow_causal_flops: float
    """FLOP/s of a causal head with at most 64 columns."""
    tile_seconds: float
    """Seconds of a tile of 128 rows in 16 bits, beside its steps."""
    step_seconds: Mapping[int, float]
    """Seconds of its step of 128 keys, by columns of a head."""
    causal_step_seconds: Mapping[int, float]
    """Seconds of that step where what comes later is cut off."""
    library_launch_seconds: Mapping[int, float]
    """Seconds that PyTorch's call takes on the card beside its work."""
    library_flops: float
    """FLOP/s of its fastest backend in float32."""
    library_tile_seconds: float
    """Seconds of a tile of 128 rows in PyTorch's fastest backend in 16 bits."""
    library_step_seconds: Mapping[int, float]
    """Seconds of its step of 128 keys, by columns of a head."""
    library_causal_step_seconds: Mapping[int, float]
    """Seconds of that step where what comes later is cut off."""
    few_bandwidth: Mapping[int, float]
    """Bytes/s of keys and values where rows that have them in common are few."""
    library_few_bandwidth: float
    """Bytes/s of them in PyTorch's fastest backend in 16 bits."""
    mask_seconds: float
    """Seconds of a score that a mask of its own changes, beside all else, in ours."""
    library_mask_seconds: float
    """Seconds of the same score in PyTorch's fastest backend."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machine:
    """Limits and rates of one card; each is equal to itself alone, so that rankings can be kept."""

    name: str
    """As `torch.cuda.get_device_name` gives it."""
    origin: Origin
    """Whether the rates are measured or modelled."""
    sm_count: int
    """Streaming multiprocessors."""
    l2_bytes: int
    """L2 cache, bytes."""
    shared_memory_per_block: int
    """Most shared memory that one block can ask for, bytes."""
    registers_per_sm: int
    """32-bit registers of a multiprocessor."""
    copy_bandwidth: float
    """Device-to-device copy, bytes read plus bytes written a second."""
    read_bandwidth: float
    """Reading alone, bytes a second."""
    write_bandwidth: float
    """Writing alone, bytes a second."""
    flops: Mapping[str, float]
    """FLOP/s of each arithmetic: "fp32_simt" and "fp64_simt" (CUDA cores), "tf32", "fp16", "bf16"
    (tensor cores), "fp16x3" (fp32 products, each as three fp16 ones of a warpgroup). A card without
    a unit lacks its key."""
    limits: Limits
    launches: LaunchRates
    cuda_cores: CudaCoreRates
    warpgroups: WarpgroupRates | None
    """None on a card without products by warpgroups: those of compute capability 9.0 alone."""
    convolutions: ConvolutionRates | None
    """None on a card without products by warpgroups."""
    thin: ThinRates
    few: FewRates
    many_small: ManySmallRates
    library: LibraryRates
    rows: RowRates
    windows: WindowRates
    scans: ScanRates
    recurrent: RecurrentRates | None
    """None on a card without products by warpgroups."""
    attention: AttentionRates | None
    """None on a card without products by warpgroups."""

    @property
    def has_clusters(self) -> bool:
        """Clusters of blocks, barriers in shared memory and bulk copies: capability 9.0 on."""
        return self.limits.cluster_blocks > 1

    def floor_seconds(self, size: float, flops: float, arithmetic: str) -> float:
        """Least time to move `size` bytes of device memory and do `flops` operations.

        The larger of the two times: no program runs much faster. KeyError if the card lacks the
        arithmetic.
        """
        return max(size / self.copy_bandwidth, flops / self.flops[arithmetic])
