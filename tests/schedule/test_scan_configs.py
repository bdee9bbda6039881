"""Who has a row of a running total, by how long and how many rows are."""

import pytest

from kernelwright.ir.kinds import Accumulation, Scan
from kernelwright.ir.scan_configs import ScanWay
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import H200
from kernelwright.schedule.scan_configs import scan_configs


@pytest.mark.parametrize(
    ("rows", "length", "op", "way"),
    [
        # Rows that begin between vectors; of whole vectors; more than lanes hold.
        (75001, 593, Accumulation.SUM, ScanWay.ROW_IN_LANES),
        (75001, 592, Accumulation.SUM, ScanWay.ROW_PER_WARP),
        (75001, 701, Accumulation.SUM, ScanWay.ROW_PER_WARP),
        (75001, 593, Accumulation.PRODUCT, ScanWay.ROW_PER_WARP),
        # Many rows and a few.
        (32767, 2049, Accumulation.SUM, ScanWay.ROW_PER_WARP),
        (128, 2048, Accumulation.SUM, ScanWay.ROW_PER_BLOCK),
        (32767, 4097, Accumulation.SUM, ScanWay.ROW_PER_BLOCK),
    ],
)
def test_short_rows_have_a_warp_where_there_are_many(
    rows: int, length: int, op: Accumulation, way: ScanWay
) -> None:
    kind = TensorType(DType.F32, (Dim.static(rows), Dim.static(length)))
    scan = Scan(op=op, dim=1, reverse=False, exclusive=False)
    first = scan_configs(scan, kind, [kind], H200)[0]
    assert first.way is way
    if way is ScanWay.ROW_IN_LANES:
        assert first.items % 2 == 1
        assert first.items * 32 >= length
