"""Any card: limits that the driver reports, clocks times units, and the H200's fits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Limits, Machine, Origin


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
class _Capability:
    """What a multiprocessor of one compute capability has."""

    fp32: int
    """FLOP of CUDA cores a cycle, float32."""
    fp64: int
    """FLOP of CUDA cores a cycle, float64."""
    tf32: int
    """FLOP of tensor cores a cycle, TF32; 0 without."""
    half: int
    """FLOP of tensor cores a cycle, 16-bit types."""
    threads: int
    """Most threads that it holds."""
    blocks: int
    """Most blocks that it holds."""


# CUDA C++ programming guide, "Throughput of native arithmetic instructions", times 2 for
# multiply-add, and "Technical specifications per compute capability"; tensor cores from the
# architecture white papers (dense).
_CAPABILITIES: Mapping[tuple[int, int], _Capability] = MappingProxyType(
    {
        (7, 0): _Capability(fp32=128, fp64=64, tf32=0, half=1024, threads=2048, blocks=32),
        (7, 5): _Capability(fp32=128, fp64=4, tf32=0, half=1024, threads=1024, blocks=16),
        (8, 0): _Capability(fp32=128, fp64=64, tf32=1024, half=2048, threads=2048, blocks=32),
        (8, 6): _Capability(fp32=256, fp64=4, tf32=256, half=512, threads=1536, blocks=16),
        (8, 9): _Capability(fp32=256, fp64=4, tf32=512, half=1024, threads=1536, blocks=24),
        (9, 0): _Capability(fp32=256, fp64=128, tf32=2048, half=4096, threads=2048, blocks=32),
        (10, 0): _Capability(fp32=256, fp64=128, tf32=4096, half=8192, threads=2048, blocks=32),
        (12, 0): _Capability(fp32=256, fp64=4, tf32=512, half=1024, threads=1536, blocks=24),
    }
)

_REACHABLE_BANDWIDTH = 0.89
"""Share of the pin bandwidth that a copy reaches: 4.28 of 4.8 TB/s on the H200."""


def modelled(properties: DeviceProperties) -> Machine:
    """A card that nobody has measured: clocks times units, and the reachable share of the bus.

    A capability that the table lacks counts as the newest one below it. Fits are the H200's.
    """
    capability = (properties.major, properties.minor)
    known = max((key for key in _CAPABILITIES if key <= capability), default=min(_CAPABILITIES))
    has = _CAPABILITIES[known]
    bandwidth = _REACHABLE_BANDWIDTH * _pins(properties)
    return replace(
        H200,
        name=properties.name,
        origin=Origin.MODELLED,
        sm_count=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        shared_memory_per_block=properties.shared_memory_per_block_optin,
        registers_per_sm=properties.regs_per_multiprocessor,
        copy_bandwidth=bandwidth,
        read_bandwidth=bandwidth,
        write_bandwidth=bandwidth,
        flops=_flops(properties, has, capability),
        limits=_limits(has, capability),
        # Only this architecture has the instructions that feed its tensor cores fast enough.
        warpgroups=H200.warpgroups if known == (9, 0) else None,
        convolutions=H200.convolutions if known == (9, 0) else None,
        recurrent=H200.recurrent if known == (9, 0) else None,
        attention=H200.attention if known == (9, 0) else None,
    )


def _pins(properties: DeviceProperties) -> float:
    """Bytes a second of the memory bus, which moves data on both clock edges."""
    memory_clock, bus = (_told(properties, it) for it in ("memory_clock_rate", "memory_bus_width"))
    return 2 * memory_clock * 1e3 * bus / 8


def _flops(
    properties: DeviceProperties, has: _Capability, capability: tuple[int, int]
) -> Mapping[str, float]:
    cycles = properties.multi_processor_count * _told(properties, "clock_rate") * 1e3
    rates = {
        "fp32_simt": has.fp32 * cycles,
        "fp64_simt": has.fp64 * cycles,
        "tf32": has.tf32 * cycles,
        "fp16": has.half * cycles,
        "bf16": has.half * cycles if capability >= (8, 0) else 0.0,
        "fp16x3": has.half * cycles / 3 if has is _CAPABILITIES[9, 0] else 0.0,
    }
    return MappingProxyType({unit: rate for unit, rate in rates.items() if rate > 0})


def _limits(has: _Capability, capability: tuple[int, int]) -> Limits:
    return replace(
        H200.limits,
        sm_threads=has.threads,
        sm_blocks=has.blocks,
        cluster_blocks=H200.limits.cluster_blocks if capability >= (9, 0) else 1,
    )


def _told(properties: DeviceProperties, name: str) -> int:
    told: int = getattr(properties, name, _CLOCKS[name])
    return told
