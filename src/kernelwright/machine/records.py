"""The records of a card: its limits, and the rates that our models of time are fitted with.

A field says what a number means and in which unit. Where a number was measured stands in the file
of the card, beside the number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kernelwright.machine.rates import (
    AttentionRates,
    ConvolutionRates,
    CudaCoreRates,
    FewRates,
    LaunchRates,
    LibraryRates,
    ManySmallRates,
    RecurrentRates,
    RowRates,
    ScanRates,
    ThinRates,
    WarpgroupRates,
    WindowRates,
)


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
