"""NVIDIA H100 (SXM, 80 GB): nobody has measured one here.

Its multiprocessors are the H200's, as many, with the same limits, and the same power. So what was
fitted on the H200 per multiprocessor is carried over, and what memory limits follows the pins.
"""

from dataclasses import replace

from kernelwright.machine.h200 import H200
from kernelwright.machine.records import Machine, Origin

_PINS = 3.35e12 / 4.8e12
"""Bandwidth of its memory over the H200's, both as the data sheets have them."""

assert H200.warpgroups is not None
H100 = Machine(
    name="NVIDIA H100 80GB HBM3",
    origin=Origin.MODELLED,
    sm_count=132,
    l2_bytes=50 * 2**20,
    shared_memory_per_block=227 * 2**10,
    registers_per_sm=65536,
    copy_bandwidth=_PINS * H200.copy_bandwidth,
    read_bandwidth=_PINS * H200.read_bandwidth,
    write_bandwidth=_PINS * H200.write_bandwidth,
    flops=H200.flops,
    limits=H200.limits,
    launches=H200.launches,
    cuda_cores=H200.cuda_cores,
    warpgroups=replace(H200.warpgroups, split_bandwidth=_PINS * H200.warpgroups.split_bandwidth),
    convolutions=H200.convolutions,
    thin=H200.thin,
    many_small=H200.many_small,
    library=H200.library,
    rows=H200.rows,
    windows=H200.windows,
    scans=H200.scans,
    recurrent=H200.recurrent,
    attention=H200.attention,
)
"""The counts are the data sheet's; every rate is carried over from the H200 as said above, none is
measured."""
