"""Ways to scan, best first."""

from collections.abc import Sequence

from kernelwright.ir.kinds import Accumulation, Scan
from kernelwright.ir.scan_configs import ScanConfig, ScanWay
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine

_COLUMNS = {Accumulation.SUM: 8, Accumulation.PRODUCT: 4}
"""Neighbouring columns of a lane at most: a block's totals of two chunks have 48 KB of shared
memory, and those of products of floats are doubles."""
_SUMS = ((8, 4), (16, 2), (8, 2), (4, 4))
"""Warps that share a row, and vectors of a chunk in each of their threads."""
_LANE_ITEMS = 21
"""Elements of a lane at most, of which no thread spills."""
_PRODUCTS = ((4, 2, 4, 6), (8, 1, 8, 4), (4, 1, 8, 8))
"""Shapes for products, whose parts are doubles and take twice as many registers: chunks on their
way are in shared memory. How many there are, and blocks of a multiprocessor."""


def scan_configs(
    scan: Scan, output: TensorType, inputs: Sequence[ValueType], machine: Machine
) -> tuple[ScanConfig, ...]:
    """Configurations of a scan of `inputs` with this result, best first; at least one."""
    sizes = [kind.dtype.itemsize for kind in (output, *inputs) if isinstance(kind, TensorType)]
    width = max(2, machine.limits.access_bytes // max(sizes))
    inner = 1
    for dim in output.shape[scan.dim + 1 :]:
        inner *= dim.hint
    if inner > 1:
        return _columns(inner, min(width, _COLUMNS[scan.op]))
    length = output.shape[scan.dim].hint
    rates = machine.scans
    lanes = _lanes(scan, output, sizes, width, machine)
    if length <= rates.warp_elements or (
        scan.op is Accumulation.SUM
        and length <= rates.lone_warp_elements
        and output.numel_hint >= length * rates.many_rows
    ):
        return (
            *lanes,
            *(
                ScanConfig(way=ScanWay.ROW_PER_WARP, width=width, items=items, warps=8)
                for items in _items(length, width, machine)
            ),
        )
    blocks = machine.sm_count * machine.scans.sm_blocks
    if scan.op is Accumulation.PRODUCT:
        is_lean = len(inputs) == 1 and width <= machine.scans.lean_width
        return tuple(
            ScanConfig(
                way=ScanWay.ROW_PER_BLOCK,
                width=width,
                items=items,
                warps=warps,
                min_blocks=blocks,
                stages=stages,
                resident=resident if is_lean else resident * 2 // 3,
            )
            for warps, items, stages, resident in _PRODUCTS
        )
    return tuple(
        ScanConfig(
            way=ScanWay.ROW_PER_BLOCK, width=width, items=items, warps=warps, min_blocks=blocks
        )
        for warps, items in _SUMS
    )


def _lanes(
    scan: Scan, output: TensorType, sizes: Sequence[int], width: int, machine: Machine
) -> tuple[ScanConfig, ...]:
    """For many short rows that begin between vectors."""
    length, warp = output.shape[scan.dim].hint, machine.limits.warp_threads
    items = max(3, -(-length // warp) | 1)
    fits = (
        scan.op is Accumulation.SUM
        and length % width != 0
        and len(sizes) == 2
        and max(sizes) <= 4
        and items <= _LANE_ITEMS
        and output.numel_hint >= length * machine.scans.many_rows
    )
    config = ScanConfig(way=ScanWay.ROW_IN_LANES, width=1, items=items, warps=4, resident=8)
    return (config,) if fits else ()


def _items(length: int, width: int, machine: Machine) -> tuple[int, ...]:
    """Vectors of a lane in a chunk: one where rows begin between vectors and few are whole, and
    more where there are many chunks."""
    if length > machine.scans.warp_elements:
        return (4, 2)
    return (1, 2) if length % width != 0 else (2, 4)


def _columns(inner: int, width: int) -> tuple[ScanConfig, ...]:
    """A lane has as many neighbouring columns as the inner dimensions are a multiple of."""
    while inner % width != 0:
        width //= 2
    return tuple(
        ScanConfig(way=ScanWay.COLUMNS, width=width, items=4, warps=warps) for warps in (8, 4, 16)
    )
