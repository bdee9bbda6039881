"""Convolutions with few products for each element, on the CUDA cores (conv_direct.cuh)."""

from math import ceil, prod

from kernelwright.ir.conv_configs import DirectConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.conv_shape import ConvSizes

THREADS = 128
POSITIONS = 4
"""Neighbouring elements of a row of the result that a thread computes."""
MOST_PRODUCTS = 256
"""Products of an element: their filter is in shared memory."""
_MOST_COLUMNS = 16
"""Elements of a row of the input that a thread keeps."""
_MOMENT_PRODUCTS = 8
"""Products that take as long as an element's share of moments; not measured."""
_CHANNELS = (24, 16, 8)
"""Output channels of a thread, the best first."""


def direct_config(sizes: ConvSizes) -> DirectConfig | None:
    """The configuration that wastes the fewest channels; None where the kernel is none for it."""
    width = sizes.axes[0]
    columns = (POSITIONS - 1) * width.stride + (width.taps - 1) * width.dilation + 1
    is_usual = sizes.groups == 1 and not sizes.transposed and not sizes.turned
    is_small = sizes.in_channels * sizes.taps <= MOST_PRODUCTS and columns <= _MOST_COLUMNS
    if not is_usual or not is_small or sizes.dtype is not DType.F32:
        return None
    padded = {count: ceil(sizes.out_channels / count) * count for count in _CHANNELS}
    return DirectConfig(channels=min(_CHANNELS, key=padded.__getitem__))


def direct_seconds(sizes: ConvSizes, config: DirectConfig, machine: Machine) -> float:
    """Seconds of the launch: its multiplications, or what it reads and writes."""
    assert machine.convolutions is not None, f"{machine.name} has no rates of convolutions"
    rates = machine.convolutions
    rows = sizes.images * prod(axis.out for axis in sizes.axes[1:])
    units = rows * ceil(sizes.axes[0].out / POSITIONS)
    blocks = ceil(units / THREADS) * ceil(sizes.out_channels / config.channels)
    each = sizes.in_channels * sizes.taps
    if sizes.moments is not None:
        each += _MOMENT_PRODUCTS
    products = config.channels * each
    of_block = 2 * THREADS * POSITIONS * products
    rate = rates.direct_share * machine.flops["fp32_simt"] / machine.sm_count
    multiplying = ceil(blocks / machine.sm_count) * of_block / rate
    moved = sizes.dtype.itemsize * (sizes.input_elements + sizes.stored_elements)
    moving = moved / rates.plane_bandwidth
    seconds = max(multiplying, moving) + machine.launches.product_seconds
    # What the warps have left is combined.
    return seconds + (0 if sizes.moments is None else machine.launches.next_seconds)
