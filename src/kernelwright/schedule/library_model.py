"""How long a matrix product takes in PyTorch's libraries, and when ours is worth leaving them.

Every rate comes from the machine.
"""

from kernelwright.ir.product_configs import ProductConfig, TensorCoreConfig, ThinConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.product_shape import ProductShape

LIBRARY_UNIT = {
    DType.F32: "fp32_simt",
    DType.F64: "fp64_simt",
    DType.F16: "fp16",
    DType.BF16: "bf16",
}
"""The arithmetic that the library multiplies a type with, a key of `Machine.flops`."""


def library_seconds(shape: ProductShape, machine: Machine, *, adds_bias: bool = False) -> float:
    """cuBLAS, which has a kernel for every shape; `adds_bias`: in the same call."""
    unit = LIBRARY_UNIT[shape.dtype]
    found = machine.library.products[unit]
    share = machine.library.unaligned_short if _is_unaligned_short(shape) else found.share
    rate = share * machine.flops.get(unit, 0.0)
    rate = rate or machine.flops["fp32_simt"]  # A card without the 16-bit type.
    seconds = _left_seconds(shape, machine, rate, found.tile_seconds)
    return max(
        seconds, machine.library.call_seconds + _steps_seconds(shape, machine, adds_bias=adds_bias)
    )


def _is_unaligned_short(shape: ProductShape) -> bool:
    """Whether a 16-bit product has rows for which cuBLAS takes kernels of older cards."""
    chunk = 16 // shape.dtype.itemsize
    is_aligned = shape.lhs.is_aligned and shape.rhs.is_aligned and shape.n % chunk == 0
    return shape.dtype in (DType.F16, DType.BF16) and not is_aligned


def _steps_seconds(shape: ProductShape, machine: Machine, *, adds_bias: bool) -> float:
    """Least seconds of the library's steps along K; 0 for few rows: those have own kernels."""
    rates, least = machine.library, min(shape.m, shape.n)
    if shape.batches > 1 or shape.dtype is not DType.F32 or least < machine.thin.tiled_rows:
        return 0.0
    if adds_bias and least >= rates.biased_rows:
        # Tiles of 128 x 64, however few, and no K that is cut.
        return shape.k * rates.biased_k_seconds
    return min(shape.k, rates.known_k) * rates.k_seconds


def convolution_seconds(shape: ProductShape, machine: Machine) -> float:
    """Seconds of the product as a convolution of one tap, by cuDNN.

    PyTorch lets it multiply fp32 as TF32 unless told otherwise (torch.backends.cudnn.allow_tf32).
    """
    if shape.dtype is not DType.F32 or "tf32" not in machine.flops:
        return library_seconds(shape, machine)
    found = machine.library.convolutions
    return _left_seconds(shape, machine, found.share * machine.flops["tf32"], found.tile_seconds)


def patches_seconds(shape: ProductShape, machine: Machine) -> float:
    """Seconds of the product as a convolution of patches of few channels, by cuDNN."""
    assert machine.convolutions is not None
    kind = "fp32" if shape.dtype is DType.F32 else "short_few"
    rate = machine.convolutions.library[kind]
    seconds = 2 * shape.products / rate.flops + shape.bytes / rate.bandwidth
    return seconds + machine.library.call_seconds


def _left_seconds(shape: ProductShape, machine: Machine, rate: float, tile: float) -> float:
    tiles = shape.tiles(128, 128) / machine.sm_count * tile
    moving = shape.bytes / (machine.library.bandwidth_share * machine.copy_bandwidth)
    return max(2 * shape.products / rate + tiles, moving) + machine.library.call_seconds


def is_convincing(
    config: ProductConfig, shape: ProductShape, seconds: float, library: float, machine: Machine
) -> bool:
    """Whether the model's promise is worth leaving the library.

    It knows shapes that fill the card within some 20 %, and small ones, which both sides spend on
    launches and latencies, hardly.
    """
    known = machine.library
    if shape.dtype in (DType.F16, DType.BF16) and library < known.short_seconds:
        return known.short_margin * seconds <= library
    if shape.dtype is not DType.F32:
        return seconds <= library
    match config:
        case TensorCoreConfig():
            return known.margin * seconds <= library and library >= known.known_seconds
        case ThinConfig():
            wide = max(shape.lhs, shape.rhs, key=lambda factor: factor.elements)
            enough = library >= known.known_thin_seconds
            return seconds <= library and enough and wide.is_aligned
        case _:
            # Beaten by cuBLAS where nothing is fused with the product.
            return False
