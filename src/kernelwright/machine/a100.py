"""NVIDIA A100 (40 and 80 GB): nobody has measured one here.

Bandwidths are the H200's share of the pins; FLOP/s are the data sheet's. What was fitted on the
H200 is carried over but for warpgroups and clusters, which the card does not have.
"""

from dataclasses import replace
from types import MappingProxyType

from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Machine, Origin

_PINS = 2.039e12 / 4.8e12
"""Bandwidth of its memory (80 GB, SXM) over the H200's, both as the data sheets have them."""

A100 = Machine(
    name="NVIDIA A100-SXM4-80GB",
    origin=Origin.MODELLED,
    sm_count=108,
    l2_bytes=40 * 2**20,
    shared_memory_per_block=163 * 2**10,
    registers_per_sm=65536,
    copy_bandwidth=_PINS * H200.copy_bandwidth,
    read_bandwidth=_PINS * H200.read_bandwidth,
    write_bandwidth=_PINS * H200.write_bandwidth,
    flops=MappingProxyType(
        {
            "fp32_simt": 19.5e12,
            "fp64_simt": 9.7e12,
            "tf32": 156e12,
            "fp16": 312e12,
            "bf16": 312e12,
        }
    ),
    limits=replace(H200.limits, cluster_blocks=1),
    launches=H200.launches,
    cuda_cores=H200.cuda_cores,
    warpgroups=None,
    convolutions=None,
    thin=H200.thin,
    few=H200.few,
    many_small=H200.many_small,
    library=H200.library,
    rows=H200.rows,
    windows=H200.windows,
    scans=H200.scans,
    recurrent=None,
    attention=None,
)
"""The counts are the data sheet's, the limits those of compute capability 8.0 in the CUDA C++
programming guide; every other rate is carried over from the H200, none is measured."""

A100_40GB = replace(
    A100,
    name="NVIDIA A100-SXM4-40GB",
    copy_bandwidth=1.555e12 / 4.8e12 * H200.copy_bandwidth,
    read_bandwidth=1.555e12 / 4.8e12 * H200.read_bandwidth,
    write_bandwidth=1.555e12 / 4.8e12 * H200.write_bandwidth,
)
"""The card with less and slower memory, 1.555 TB/s by the data sheet."""
