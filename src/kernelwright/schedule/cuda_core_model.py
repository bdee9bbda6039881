"""How long a matrix product takes on the CUDA cores, in tiles or with few rows.

Every limit and rate comes from the machine.
"""

from math import ceil

from kernelwright.ir.product_configs import GemmConfig, ThinConfig
from kernelwright.ir.types import DType
from kernelwright.machine import Machine
from kernelwright.schedule.product_shape import ProductShape


def thin_seconds(shape: ProductShape, config: ThinConfig, machine: Machine) -> float:
    """Reading the wide factor once, or multiplying it with every row that there is room for."""
    moving = shape.bytes / (machine.thin.read_share * machine.read_bandwidth)
    # Fewer rows than a thread reads ahead: as many fewer bytes are in flight.
    moving *= max(1.0, config.step / max(1, shape.k))
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    tiles = ceil(min(shape.m, shape.n) / config.rows)
    products = shape.batches * max(shape.m, shape.n) * shape.k * config.rows * tiles
    rates = machine.thin
    launching = machine.launches.product_seconds + machine.launches.next_seconds
    if config.row_tiles > 1:
        # Tiles of other rows read what is in the cache.
        multiplying = 2 * products / (rates.tiled_share * machine.flops[unit])
        return moving + multiplying + launching + rates.tiled_seconds
    if config.rows > rates.tiled_rows:
        # So many rows leave room for few warps, and nothing hides how they begin and end.
        launching += 2 * rates.tiled_seconds + min(moving, 4 * rates.tiled_seconds)
    multiplying = 2 * products / (rates.arithmetic_share * machine.flops[unit])
    return max(moving, multiplying) + launching


def simt_registers(config: GemmConfig, itemsize: int, machine: Machine) -> int:
    """Registers of a thread: accumulators, one fragment of each operand, and addresses."""
    values = config.thread_m * config.thread_n + config.thread_m + config.thread_n
    return max(1, itemsize // 4) * values + machine.cuda_cores.other_registers


def simt_seconds(shape: ProductShape, config: GemmConfig, machine: Machine) -> float:
    """Waves of tiles times the time of one tile, on the CUDA cores."""
    rates = machine.cuda_cores
    # An SM runs as many blocks as its registers hold, and some threads hide its latencies.
    fitting = machine.registers_per_sm // (simt_registers(config, 4, machine) * config.threads)
    resident = max(1, min(rates.hiding_threads // config.threads, fitting))
    tiles = shape.tiles(config.block_m, config.block_n)
    waves = ceil(tiles / (machine.sm_count * resident))
    # What K lacks of whole steps is multiplied, too.
    depth = ceil(shape.k / config.block_k) * config.block_k
    work = config.block_m * config.block_n * resident * 2 * depth
    # Shared-memory reads and global loads for each multiply-add, and barriers for each step of K,
    # all slow a step down.
    reads = 1 / config.thread_m + 1 / config.thread_n
    loads = 1 / config.block_m + 1 / config.block_n
    shallow = rates.two_stages if config.stages == 2 else 0.0
    overhead = 1 + rates.shared_read * reads + rates.global_load * loads
    overhead += rates.barrier / config.block_k + shallow
    unit = "fp64_simt" if shape.dtype is DType.F64 else "fp32_simt"
    rate = machine.flops[unit] / machine.sm_count
    moving = shape.bytes / machine.copy_bandwidth
    # Blocks store when they have multiplied, all at about one time.
    result = shape.batches * shape.m * shape.n * shape.dtype.itemsize
    storing = result / (rates.store_share * machine.write_bandwidth)
    seconds = max(waves * work * overhead / rate + storing, moving)
    return seconds + machine.launches.product_seconds
