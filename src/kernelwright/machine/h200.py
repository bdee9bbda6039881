"""NVIDIA H200 (SXM, 141 GB): the card that everything here was measured on.

Unless a number says otherwise: 2026-11-21, torch 2.11, CUDA 13.0, driver 580.
"""

from types import MappingProxyType

from kernelwright.machine.rates import (
    AttentionRates,
    ConvolutionRates,
    CudaCoreRates,
    FewRates,
    LaunchRates,
    LibraryConvolution,
    LibraryRate,
    LibraryRates,
    ManySmallRates,
    RecurrentRates,
    RowRates,
    ScanRates,
    StoreCycles,
    ThinRates,
    TurnRates,
    WarpgroupRates,
    WindowRates,
)
from kernelwright.machine.records import Limits, Machine, Origin

_LIMITS = Limits(
    warp_threads=32,
    block_threads=1024,
    sm_threads=2048,
    sm_blocks=32,
    thread_registers=255,
    cluster_blocks=16,
    access_bytes=16,
    static_shared_bytes=48 * 2**10,
    reserved_shared_bytes=2**10,
)
"""CUDA C++ programming guide, "Technical specifications per compute capability", 9.0."""

_LAUNCHES = LaunchRates(
    product_seconds=3e-6,
    next_seconds=2e-6,
    added_seconds=4e-6,
    joined_seconds=2e-6,
    joined_run_bytes=512,
    joined_row_bytes=64,
    stage_bytes=16e6,
    stage_elements=512,
    transposed_bytes=2e6,
)
"""Timed with a cold L2: products (docs/measured/gemm.md), joined tensors and reductions in stages
(docs/measured/streaming.md, docs/measured/rows.md), transposed operands
(docs/measured/convolution.md)."""

_CUDA_CORES = CudaCoreRates(
    least_threads=64,
    most_threads=512,
    thread_registers=240,
    other_registers=40,
    hiding_threads=512,
    shared_read=0.6,
    global_load=25,
    barrier=0.5,
    two_stages=0.02,
    store_share=0.62,
    card_share=0.5,
)
"""Fitted to the tiles of benchmarks/results/kernels_h200.json (docs/measured/gemm.md)."""

_WARPGROUPS = WarpgroupRates(
    clock=1.53e9,
    step_cycles=MappingProxyType(
        {
            (3, 64): 1000,
            (3, 128): 1550,
            (1, 16): 320,  # Not measured, as (1, 32).
            (1, 32): 330,
            (1, 64): 360,
            (1, 128): 560,
            (1, 192): 810,
            (1, 256): 1060,
        }
    ),
    copy_cycles=1200,  # Not measured.
    # 3 x 3 of 64 channels, 56 x 56, and of 32 of 128: 31.7 and 104.7 us.
    patch_row_cycles=2.9,
    missing_row_cycles=7.0,  # 64 channels in tiles of 128, 192 and 256: 49.8, 66.8 and 84.7 us.
    short_tile_cycles=2000,  # mobilenet_v3_large's products of 16 to 120 channels.
    # Not measured: what instructions read of shared memory, and 8 cycles each.
    band_tap_cycles=MappingProxyType({16: 200, 32: 256, 64: 360, 128: 560}),
    resident_share=0.4,  # Not measured.
    many_narrow=1.3,
    inside_step_cycles=3200,
    tile_cycles=3900,
    buffered_tile_cycles=1900,
    unaligned_tile_cycles=10000,
    joined_edge_cycles=26000,  # 57 us for 1,152 x (192, 32 x 49) with norm and SiLU in three waves
    cluster_tile_cycles=1200,
    two_stages=1.055,
    unshared=1.02,
    converting=1.5,
    transposed=1.5,
    clusters_of_four=10 / 11,
    operand_share=0.9,
    few_rows_share=0.7,
    store_share=0.62,
    buffered_store_share=0.7,
    narrow_store=1.03,
    least_seconds=11e-6,
    split_bandwidth=3.7e12,
    ahead_elements=400,
    buffered_k=512,
    turns=TurnRates(
        share=1.3,
        narrow=1.0,
        bytes=60.0,
        shared=1.35,
        tile_cycles=800.0,
        result_cycles=5.0,
        extra=0.4,
        short=4.5,  # 64 to 256 channels, 56 x 56, with norm and ReLU: 44 us.
        shifted=4.2,
        begin_cycles=5500.0,
        cluster_cycles=0.0,
    ),
    # Fitted to benchmarks/results/products_in_lines_h200.json, eleven products in nine ways each.
    short_turns=TurnRates(
        share=1.07,
        narrow=1.06,
        bytes=71.5,
        shared=1.5,
        tile_cycles=2130.0,
        result_cycles=5.0,
        extra=0.8,
        short=4.5,  # Not measured.
        shifted=4.0,
        begin_cycles=1500.0,
        cluster_cycles=3600.0,
    ),
    short_step=0.91,
    short_tile=1.09,
    short_extra=0.16,
    cycle_products=2048,
    slice_k=256,
    least_products=1 << 24,
)
"""Fitted to products of fp32, fp16 and bf16, each timed by itself with a cold L2; the clock is what
was seen at 4096^3 (docs/measured/gemm.md)."""

_CONVOLUTIONS = ConvolutionRates(
    clock=1.6e9,
    product_share=1.02,
    patch_products=1.19,
    row_cycles=MappingProxyType(
        {(1, 16): 1.95, (1, 32): 2.05, (1, 64): 3.03, (2, 16): 1.8, (2, 32): 3.26, (2, 64): 3.6}
    ),
    deep_rows=1.28,
    overlapping_rows=1.38,
    copy_bytes=52.5,
    runs=StoreCycles(waiting=0.28, moving=0.34),
    rows=StoreCycles(waiting=0.23, moving=0.28),
    shared=MappingProxyType(
        {128: StoreCycles(waiting=0.3, moving=0.37), 256: StoreCycles(waiting=0.23, moving=0.28)}
    ),
    unaligned=StoreCycles(waiting=0.32, moving=0.69),
    runs_of_pixels=StoreCycles(waiting=0.45, moving=0.62),  # with their operations
    pairs=StoreCycles(waiting=0.3, moving=0.55),
    phases=StoreCycles(waiting=0.35, moving=0.75),
    operation=0.03,
    joined_outputs=1.15,
    scattered=StoreCycles(waiting=0.07, moving=2.75),
    window_rows=1.35,
    window_copy=100,
    finished=0.12,  # Not measured: 15 instructions of each of four warps.
    row_program=0.14,  # Not measured: 18 instructions.
    moments=0.06,  # Not measured: 5 instructions.
    joined_moments=0.25,  # Level 2 no. 72 without them here and with them on an H100.
    store_bandwidth=4e12,
    parted_bandwidth=2.3e12,
    shared_bandwidth=3.4e12,
    plane_bandwidth=3.9e12,
    turned_elements=1e12,  # not reached: memory allows 650e9 of float32
    found_elements=585e9,
    folded_elements=320e9,
    direct_share=0.45,
    filter_seconds=0.8e-6,
    library=MappingProxyType(
        {
            "tf32": LibraryConvolution(flops=450e12, bandwidth=1.6e12),
            "deep": LibraryConvolution(flops=130e12, bandwidth=1.6e12),
            "strided": LibraryConvolution(flops=130e12, bandwidth=1.2e12),
            "fp32": LibraryConvolution(flops=34e12, bandwidth=3e12),
            "grouped": LibraryConvolution(flops=12e12, bandwidth=1.2e12),
            "short": LibraryConvolution(flops=700e12, bandwidth=2.5e12),
            # 16 bits, channels that no vector holds: networks' first layers on an H100.
            "short_few": LibraryConvolution(flops=80e12, bandwidth=0.5e12),
        }
    ),
    channels_last=MappingProxyType(
        {
            "tf32": LibraryConvolution(flops=420e12, bandwidth=4e12),
            "deep": LibraryConvolution(flops=300e12, bandwidth=4e12),
            "strided": LibraryConvolution(flops=300e12, bandwidth=3e12),
            "thin": LibraryConvolution(flops=300e12, bandwidth=1.2e12),
            "odd": LibraryConvolution(flops=300e12, bandwidth=0.7e12),
        }
    ),
    library_tiles=MappingProxyType({(128, 128): 1.0, (256, 64): 1.0, (64, 64): 0.55}),
    turning_bandwidth=3.2e12,
    margin=1.05,
    one_tap=1.7,  # EfficientNetB0: 13 products of ten images, modelled 13.3 us, took 22.9.
    doubt=3.0,
)
"""Fitted to benchmarks/results/convolutions_h200.json, within 18 % (RMS); of cuDNN what it reached
at its best there and in level 2: it is often slower (docs/measured/convolution.md)."""

_THIN = ThinRates(
    read_share=0.97,
    arithmetic_share=0.6,
    flight_bytes=48 * 2**10,
    most_rows=16,
    tiled_rows=8,
    most_row_tiles=16,
    tiled_share=0.33,
    tiled_seconds=2.5e-6,
)
"""Fitted to products of 1 to 16 rows with a cold L2 (docs/measured/gemm.md)."""

_FEW = FewRates(read_share=0.85, cache_bandwidth=5.5e12, step_seconds=0.8e-6, lone_share=0.5)
"""Not timed: what a product by few threads reaches of the bandwidth, and the L2 cache's. One
block took twice as long as three for logits of 32,000 x 1,024."""

_MANY_SMALL = ManySmallRates(
    least_batches=1024,
    most_result=64 * 64,
    most_tiled_result=512 * 32,
    most_k=128,
    tensor_core_seconds=6.9e-6,  # 2048 x (512 x 32, 100) with tiles of 128 x 64.
    life_seconds=2.1e-6,
    store_seconds=0.11e-6,
    read_seconds=0.62e-6,
    access_seconds=3.6e-9,
    shared_read=0.6,
    bandwidth_share=0.9,
    thin_life_seconds=5.5e-6,
    library_share=0.64,
    library_side=16,
    library_result=32 * 32,
    library_unaligned=1.35,
    library_along_k=1.25,
    library_copy_share=0.55,
    margin=1.15,
)
"""Fitted to nineteen shapes of thousands of products, ours and cuBLAS's, with a cold L2; cuBLAS
within 17 % (docs/measured/gemm.md)."""

_LIBRARY = LibraryRates(
    call_seconds=5e-6,
    bandwidth_share=0.93,
    products=MappingProxyType(
        {
            "fp32_simt": LibraryRate(share=0.77, tile_seconds=2.5e-6),
            "fp64_simt": LibraryRate(share=0.9, tile_seconds=2.5e-6),
            "fp16": LibraryRate(share=1.02, tile_seconds=0.0),
            "bf16": LibraryRate(share=1.03, tile_seconds=0.0),
        }
    ),
    convolutions=LibraryRate(share=0.5, tile_seconds=1e-6),
    unaligned_short=0.1,
    short_margin=1.05,
    short_seconds=100e-6,
    margin=1.3,
    known_seconds=22e-6,
    tf32_channels=32,
    tf32_odd_channels=320,
    tf32_strided_channels=128,  # Of 64, ResNet18's first of two images, it takes float32.
    tf32_bytes=0.3e6,
    tf32_first_taps=49,
    tf32_first_channels=3,
    tf32_first_results=64,
    cut_seconds=40e-6,
    k_seconds=9e-9,
    biased_k_seconds=45e-9,  # 38 us of 400 and 616 rows by 512 and 768 (docs/measured/gemm.md)
    biased_rows=256,
    known_k=4096,
    known_thin_seconds=6.5e-6,
    channels_last_channels=16,
    channels_last_few=8,
    channels_last_few_results=32,
    channels_last_taps=64,
)
"""cuBLAS and cuDNN of torch 2.11 with a cold L2 (docs/measured/gemm.md and convolution.md). The
margins are those with which ours was faster, with few exceptions, of 200 random fp32 products; of
the others half were slower (benchmarks/results/matmul_random_h200.json)."""

_ROWS = RowRates(
    least_registers=64,
    held_registers=64,
    column_registers=40,
    holding_threads=512,
    column_elements=128,
    block_bytes=8 * 2**10,
    short_threads=256,
    short_registers=28,
    many_rows=2**12,
    few_row_bytes=2**16,
    busy_threads=1024,
    cached_row_bytes=2**18,
    lone_row_bytes=2**16,
    resident_blocks=16,
    exchange_bytes=12 * 2**10,
    grid_bytes=4 * 2**10,
    grid_room=1.3,
    grid_rows=8,
)
"""Registers from ptxas of CUDA 13.0; sizes from which on another way was the faster one, with a
cold L2 (docs/measured/rows.md)."""

_WINDOWS = WindowRates(
    flight_elements=160,
    busy_threads=512,
    narrow_registers=40,
    wide_threads=768,
    other_registers=26,
    thread_registers=200,
    far_stride=3,
    band_instruction=1.2e-9,
    band_seconds=4e-6,
    band_width=128,
    band_beside=0.1,
    channel_seconds=3e-6,
    channel_instruction=0.9e-9,
    channel_row_seconds=0.5e-6,
    channel_registers=216,
)
"""Registers from ptxas of CUDA 13.0; times of bands and of channels are guessed; the rest with a
cold L2 (docs/measured/pooling.md)."""

_SCANS = ScanRates(
    read_seconds=1e-6, sm_blocks=4, warp_elements=1024, lone_warp_elements=2560, many_rows=2**13,
    lean_width=4,
)  # fmt: skip
"""Timed with a cold L2 (docs/measured/scan.md)."""

_RECURRENT = RecurrentRates(
    launch_seconds=28e-6,
    step_seconds=MappingProxyType({1: 0.8e-6, 2: 0.8e-6, 4: 0.8e-6, 8: 0.8e-6, 16: 0.8e-6}),
    k_seconds=MappingProxyType({8: 0.0085e-6, 16: 0.018e-6, 32: 0.053e-6}),
    one_plane=1 / 3,
    two_tiles=3.0,
    clusters=MappingProxyType({1: 132, 2: 66, 4: 32, 8: 15, 16: 7}),
    library_lstm_seconds=7.7e-6,
    library_gru_seconds=9.1e-6,
    library_small_hidden=192,
    library_small_seconds=0.86e-6,
)
"""Fitted to benchmarks/results/recurrent_cells_h200.json and recurrent_h200.json
(docs/measured/recurrent.md). Clusters of fewer than eight blocks were not timed; which layers are
small is the rule of PyTorch."""

_ATTENTION = AttentionRates(
    launch_seconds=MappingProxyType({4: 40e-6, 2: 7e-6}),
    flops=165e12,
    narrow_causal_flops=130e12,
    tile_seconds=1.6e-6,
    step_seconds=MappingProxyType({64: 0.95e-6, 128: 1.38e-6, 256: 2.67e-6}),
    causal_step_seconds=MappingProxyType({64: 1.2e-6, 128: 1.42e-6, 256: 3.6e-6}),
    short_rows=MappingProxyType({4: 1536, 2: 256}),
    half_steps=1.1,
    short_launch_seconds=MappingProxyType({4: 10e-6, 2: 5e-6}),
    short_tile_seconds=MappingProxyType({4: 0.7e-6, 2: 0.45e-6}),
    short_step_seconds=MappingProxyType({4: 0.87e-6, 2: 0.41e-6}),
    library_launch_seconds=MappingProxyType({4: 25e-6, 2: 5e-6}),
    library_flops=37e12,
    library_tile_seconds=0.7e-6,
    library_step_seconds=MappingProxyType({64: 1.09e-6, 128: 1.5e-6, 256: 2.9e-6}),
    library_causal_step_seconds=MappingProxyType({64: 1.21e-6, 128: 1.77e-6, 256: 3.9e-6}),
    few_bandwidth=MappingProxyType({4: 3.3e12, 2: 1.75e12}),
    library_few_bandwidth=2.6e12,
    mask_seconds=0.3e-12,
    library_mask_seconds=1.0e-12,
)
"""Fitted to benchmarks/results/attention_h200.json and attention_variants_h200.json, short lengths
to the kernels of transformers and to attention_short_h200.json (docs/measured/attention.md)."""

H200 = Machine(
    name="NVIDIA H200",
    origin=Origin.MEASURED,
    sm_count=132,
    l2_bytes=60 * 2**20,
    shared_memory_per_block=227 * 2**10,
    registers_per_sm=65536,
    copy_bandwidth=4.28e12,
    read_bandwidth=4.34e12,
    write_bandwidth=4.65e12,
    flops=MappingProxyType(
        {
            "fp32_simt": 65.3e12,
            "fp64_simt": 33.2e12,
            "tf32": 405e12,
            "fp16": 743e12,
            "bf16": 727e12,
            "fp16x3": 272e12,
        }
    ),
    limits=_LIMITS,
    launches=_LAUNCHES,
    cuda_cores=_CUDA_CORES,
    warpgroups=_WARPGROUPS,
    convolutions=_CONVOLUTIONS,
    thin=_THIN,
    few=_FEW,
    many_small=_MANY_SMALL,
    library=_LIBRARY,
    rows=_ROWS,
    windows=_WINDOWS,
    scans=_SCANS,
    recurrent=_RECURRENT,
    attention=_ATTENTION,
)
"""The counts are what the driver reports; bandwidths and FLOP/s are the best that copies and
products reached (docs/measured/index.md)."""
