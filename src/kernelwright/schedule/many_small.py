"""Thousands of small products: tiles that a warp or two compute, and what each way costs.

Such a product is over before a pipeline along K has filled. What counts is how many blocks a
multiprocessor holds, and how long a block lives that waits for memory twice: for its factors, and
for what its epilogue reads.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Contract, Expand, Permute, Select, Slice, Squeeze, Unsqueeze, View
from kernelwright.ir.product_configs import (
    FewConfig,
    GemmConfig,
    Major,
    ProductConfig,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.types import TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.cuda_core_model import simt_registers, thin_seconds
from kernelwright.schedule.few_configs import few_seconds
from kernelwright.schedule.product_shape import ProductShape
from kernelwright.schedule.roles import Roles, roles
from kernelwright.schedule.tensor_core_model import tensor_core_blocks, tensor_core_seconds

TILES = (
    # rows, columns, K, rows and columns of a thread, stages
    (64, 64, 16, 8, 4, 3),
    (64, 16, 16, 8, 4, 3),
    (16, 64, 16, 4, 8, 3),
    (32, 64, 16, 4, 8, 2),
    (64, 32, 16, 8, 4, 2),
    (32, 32, 16, 4, 4, 2),
    (4, 128, 8, 4, 4, 2),
)
"""Choices with one accumulator: a second one takes as much shared memory as the result."""


def many_small_configs(shape: ProductShape) -> Iterator[GemmConfig]:
    """The small tiles that can read the factors as they lie."""
    for block_m, block_n, block_k, thread_m, thread_n, stages in TILES:
        config = GemmConfig(
            block_m=block_m,
            block_n=block_n,
            block_k=block_k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=stages,
            promote_k=0,
        )
        sides = ((block_m, shape.lhs.major), (block_n, shape.rhs.major))
        # Of factors without neighbours in memory the threads read whole rows of the tile.
        if all(major is not Major.NONE or config.threads % side == 0 for side, major in sides):
            yield config


def many_small_seconds(shape: ProductShape, config: ProductConfig, machine: Machine) -> float:
    """Lives of blocks, as many at a time as there is room for; or all bytes once."""
    extra = shape.extras * shape.batches * shape.m * shape.n * shape.dtype.itemsize
    bandwidth = machine.many_small.bandwidth_share * machine.copy_bandwidth
    reading = extra / bandwidth
    launching = machine.launches.product_seconds
    match config:
        case GemmConfig():
            moving = shape.bytes / bandwidth + reading
            return max(_lives(shape, config, machine), moving) + launching
        case ThinConfig(columns=columns, threads=threads, resident=resident):
            blocks = shape.batches * ceil(max(shape.m, shape.n) / (columns * threads // 2))
            lives = blocks / (machine.sm_count * resident) * machine.many_small.thin_life_seconds
            return max(thin_seconds(shape, config, machine), lives + launching) + reading
        case TensorCoreConfig():
            tiles = ceil(tensor_core_blocks(shape, config) / machine.sm_count)
            least = tiles * machine.many_small.tensor_core_seconds
            return max(tensor_core_seconds(shape, config, machine), least) + reading
        case FewConfig():
            return few_seconds(shape, config, machine) + reading


def _lives(shape: ProductShape, config: GemmConfig, machine: Machine) -> float:
    """What a multiprocessor's tiles keep it busy with, and wait for side by side."""
    rates = machine.many_small
    tiles = ceil(shape.tiles(config.block_m, config.block_n) / machine.sm_count)
    vectors = config.thread_m * config.thread_n / 4
    each = rates.store_seconds + shape.extras * rates.read_seconds
    life = rates.life_seconds + vectors * each
    depth = config.block_k * ceil(shape.k / config.block_k)
    accesses = depth * sum(
        side / (4 if factor.major is Major.MN else 1)
        for side, factor in ((config.block_m, shape.lhs), (config.block_n, shape.rhs))
    )
    rate = machine.flops["fp32_simt"] / machine.sm_count
    reads = rates.shared_read * (1 / config.thread_m + 1 / config.thread_n)
    work = 2 * config.block_m * config.block_n * depth / rate * (1 + reads)
    busy = work + accesses / 32 * rates.access_seconds
    return tiles * (busy + life / _resident(config, machine))


def _resident(config: GemmConfig, machine: Machine) -> int:
    """Blocks on a multiprocessor at one time; CUDA takes shared memory of each besides its own."""
    reserved = machine.limits.reserved_shared_bytes
    rows = config.block_m + config.block_n + 8
    sums = config.block_m * config.block_n if config.promote_k > 0 else 0
    shared = 4 * (config.stages * config.block_k * rows + sums) + reserved
    by_shared = (machine.shared_memory_per_block + reserved) // shared
    registers = simt_registers(config, 4, machine) * config.threads
    by_registers = machine.registers_per_sm // registers
    return max(1, min(machine.limits.sm_blocks, by_shared, by_registers))


def many_small_library_seconds(
    product: Node, shape: ProductShape, graph: Graph, machine: Machine
) -> float:
    """cuBLAS, and the copies that PyTorch makes for it."""
    assert isinstance(product.kind, Contract)
    found = roles(product.kind)
    assert isinstance(found, Roles)
    batch = [x for x in product.kind.out if x in found.left and x in found.right]
    bandwidth = machine.many_small.library_copy_share * machine.copy_bandwidth
    copying = 0.0
    for name, letters in zip(product.inputs, (product.kind.lhs, product.kind.rhs), strict=True):
        if not _is_read_in_place(graph[name], letters, batch, graph):
            moved = 2 * graph[name].tensor.bytes_hint
            copying += moved / bandwidth + machine.launches.product_seconds
    return library_product_seconds(shape, machine) + copying


def library_product_seconds(shape: ProductShape, machine: Machine) -> float:
    """cuBLAS, of factors each of which is one batch: within 17 % of what was measured.

    But for one or eight columns with a long K, which take up to 26 % longer, and outer products,
    which take 17 % less.
    """
    rates = machine.many_small
    whole = rates.library_side
    rows, columns = (whole * ceil(side / whole) for side in (shape.m, shape.n))
    result = max(rows * columns, rates.library_result) - shape.m * shape.n
    moved = shape.bytes + shape.batches * result * shape.dtype.itemsize
    wide = max(shape.lhs, shape.rhs, key=lambda factor: factor.elements)
    is_aligned = wide.is_aligned and shape.n % (16 // shape.dtype.itemsize) == 0
    slower = 1.0 if is_aligned or shape.n == 1 else rates.library_unaligned
    is_along_k = shape.rhs.major is Major.K and shape.m < shape.n
    slower *= rates.library_along_k if is_along_k else 1.0
    seconds = slower * moved / (rates.library_share * machine.copy_bandwidth)
    return seconds + machine.library.call_seconds


def _is_read_in_place(operand: Node, letters: str, batch: list[str], graph: Graph) -> bool:
    """Whether the batch is one dimension in memory, and rows or columns of its matrices lie dense.

    The library's batched product takes one stride for the batch, and one for rows or columns.
    """
    sizes = dict(zip(letters, (dim.hint for dim in operand.tensor.shape), strict=True))
    strides = dict(zip(letters, _strides(operand, graph), strict=True))
    outer = [x for x in batch if sizes[x] > 1]
    is_one = all(strides[x] == strides[y] * sizes[y] for x, y in pairwise(outer))
    matrix = [x for x in letters if x not in batch]
    return is_one and any(strides[x] == 1 or sizes[x] == 1 for x in matrix)


def _strides(node: Node, graph: Graph) -> tuple[int, ...]:
    """Strides of a value at the captured sizes, in elements: its view's, or contiguous."""
    if isinstance(node.kind, View):
        source = graph[node.inputs[0]]
        before = _strides(source, graph)
        match node.kind.map:
            case Permute(dims=dims):
                return tuple(before[dim] for dim in dims)
            case Unsqueeze(dim=dim):
                return (*before[:dim], 0, *before[dim:])
            case Squeeze(dims=dims):
                return tuple(stride for dim, stride in enumerate(before) if dim not in dims)
            case Select(dim=dim):
                return (*before[:dim], *before[dim + 1 :])
            case Slice(dim=dim, step=step):
                return (*before[:dim], before[dim] * step, *before[dim + 1 :])
            case Expand():
                sizes = [dim.hint for dim in source.tensor.shape]
                new = node.tensor.rank - len(sizes)
                kept = (
                    stride if size == dim.hint else 0
                    for size, stride, dim in zip(
                        sizes, before, node.tensor.shape[new:], strict=True
                    )
                )
                return (*[0] * new, *kept)
    return _contiguous(node.tensor)


def _contiguous(kind: TensorType) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for dim in reversed(kind.shape):
        strides.append(step)
        step *= dim.hint
    return tuple(reversed(strides))
