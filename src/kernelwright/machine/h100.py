"""NVIDIA H100 (SXM, 80 GB): its memory was measured, its other rates were not.

Its multiprocessors are the H200's, as many, with the same limits, and the same power. So what was
fitted on the H200 per multiprocessor is carried over, and what memory limits follows the pins.
Copies, reads and writes are benchmarks/results/card_rates_h100.json (torch 2.11, CUDA 13.0).
"""

from dataclasses import replace

from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Machine, Origin

_PINS = 3.35e12 / 4.8e12
"""Bandwidth of its memory over the H200's, both as the data sheets have them."""

assert H200.warpgroups is not None
assert H200.convolutions is not None
H100 = Machine(
    name="NVIDIA H100 80GB HBM3",
    origin=Origin.MODELLED,
    sm_count=132,
    l2_bytes=50 * 2**20,
    shared_memory_per_block=227 * 2**10,
    registers_per_sm=65536,
    copy_bandwidth=3.02e12,
    read_bandwidth=3.11e12,
    write_bandwidth=3.29e12,
    flops=H200.flops,
    limits=H200.limits,
    launches=H200.launches,
    cuda_cores=H200.cuda_cores,
    warpgroups=replace(H200.warpgroups, split_bandwidth=_PINS * H200.warpgroups.split_bandwidth),
    convolutions=replace(
        H200.convolutions, plane_bandwidth=_PINS * H200.convolutions.plane_bandwidth
    ),
    thin=H200.thin,
    few=H200.few,
    many_small=H200.many_small,
    library=H200.library,
    rows=H200.rows,
    windows=H200.windows,
    scans=H200.scans,
    recurrent=H200.recurrent,
    attention=H200.attention,
)
"""The counts are the data sheet's, three bandwidths are measured, other rates are the H200's."""
