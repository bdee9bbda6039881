"""What a GPU can do: limits and rates. The only place that knows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol, cast


class Origin(Enum):
    """Where the rates of a `Machine` come from."""

    MEASURED = "measured"
    """By benchmarks on a card of that name."""
    MODELLED = "modelled"
    """From clocks, bus width and unit counts that the driver reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Limits and rates of one card."""

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
    has_clusters: bool
    """Clusters of blocks, barriers in shared memory and bulk copies: compute capability 9.0 on."""

    def floor_seconds(self, size: float, flops: float, arithmetic: str) -> float:
        """Least time to move `size` bytes of device memory and do `flops` operations.

        The larger of the two times: no program runs much faster. KeyError if the card lacks the
        arithmetic.
        """
        return max(size / self.copy_bandwidth, flops / self.flops[arithmetic])


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
    has_clusters=True,
)
"""NVIDIA H200 (SXM, 141 GB); 2026-11-21, torch 2.11, CUDA 13.0, driver 580 (docs/measured)."""

_MEASURED: Mapping[str, Machine] = MappingProxyType({H200.name: H200})


class DeviceProperties(Protocol):
    """What `torch.cuda.get_device_properties` returns, as far as the model needs it."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    L2_cache_size: int
    shared_memory_per_block_optin: int
    regs_per_multiprocessor: int


_CLOCKS = MappingProxyType(
    {"clock_rate": 1_410_000, "memory_clock_rate": 1_215_000, "memory_bus_width": 5120}
)
"""Properties that not every release of torch tells, in kHz and bits; an A100's stand in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """FLOP per cycle of one multiprocessor, by compute capability."""

    fp32: int
    fp64: int
    tf32: int
    half: int


# CUDA C++ programming guide, "Throughput of native arithmetic instructions", times 2 for
# multiply-add; tensor cores from the architecture white papers (dense).
_UNITS: Mapping[tuple[int, int], _Units] = MappingProxyType(
    {
        (7, 0): _Units(fp32=128, fp64=64, tf32=0, half=1024),
        (7, 5): _Units(fp32=128, fp64=4, tf32=0, half=1024),
        (8, 0): _Units(fp32=128, fp64=64, tf32=1024, half=2048),
        (8, 6): _Units(fp32=256, fp64=4, tf32=256, half=512),
        (8, 9): _Units(fp32=256, fp64=4, tf32=512, half=1024),
        (9, 0): _Units(fp32=256, fp64=128, tf32=2048, half=4096),
        (10, 0): _Units(fp32=256, fp64=128, tf32=4096, half=8192),
        (12, 0): _Units(fp32=256, fp64=4, tf32=512, half=1024),
    }
)

_REACHABLE_BANDWIDTH = 0.89
"""Share of the pin bandwidth that a copy reaches: 4.28 of 4.8 TB/s on the H200."""


def modelled(properties: DeviceProperties) -> Machine:
    """A card that nobody has measured: clocks times units, and the reachable share of the bus.

    A capability that the table lacks counts as the newest one below it.
    """
    capability = (properties.major, properties.minor)
    known = max((key for key in _UNITS if key <= capability), default=min(_UNITS))
    units = _UNITS[known]
    # kHz; memory moves data on both clock edges.
    clock, memory_clock, bus = (getattr(properties, name, _CLOCKS[name]) for name in _CLOCKS)
    cycles = properties.multi_processor_count * clock * 1e3
    pins = 2 * memory_clock * 1e3 * bus / 8
    rates = {
        "fp32_simt": units.fp32 * cycles,
        "fp64_simt": units.fp64 * cycles,
        "tf32": units.tf32 * cycles,
        "fp16": units.half * cycles,
        "bf16": units.half * cycles if capability >= (8, 0) else 0.0,
        # Only this architecture has the instructions that feed its tensor cores fast enough.
        "fp16x3": units.half * cycles / 3 if known == (9, 0) else 0.0,
    }
    return Machine(
        name=properties.name,
        origin=Origin.MODELLED,
        sm_count=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        shared_memory_per_block=properties.shared_memory_per_block_optin,
        registers_per_sm=properties.regs_per_multiprocessor,
        copy_bandwidth=_REACHABLE_BANDWIDTH * pins,
        read_bandwidth=_REACHABLE_BANDWIDTH * pins,
        write_bandwidth=_REACHABLE_BANDWIDTH * pins,
        flops=MappingProxyType({unit: rate for unit, rate in rates.items() if rate > 0}),
        has_clusters=capability >= (9, 0),
    )


def machine_of(properties: DeviceProperties) -> Machine:
    """The measured card of that name, or a modelled one."""
    return _MEASURED.get(properties.name) or modelled(properties)


def detect() -> Machine | None:
    """The current CUDA device, or None where PyTorch sees none."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    # torch's stubs leave out some of the fields that the class has.
    return machine_of(cast(DeviceProperties, properties))


def modelled_machine() -> Machine:
    """The GPU of this machine, or the card that everything is modelled for without one."""
    return detect() or H200
