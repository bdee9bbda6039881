"""What a plan must spend, and on which unit."""

from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.cost import Cost, cost_of_kernel
from kernelwright.schedule.families import family_of
from kernelwright.schedule.gemm_work import kept_share


def test_the_floor_is_that_of_the_fastest_unit_of_the_card() -> None:
    cost = Cost(bytes=0, flops=10**12, units=("fp32_simt", "fp16x3"))
    assert cost.arithmetic(H200) == "fp16x3"
    flops = {unit: rate for unit, rate in H200.flops.items() if unit != "fp16x3"}
    older = replace(H200, flops=MappingProxyType(flops))
    assert cost.arithmetic(older) == "fp32_simt"
    assert cost.floor_seconds(older) > 4 * cost.floor_seconds(H200)


@pytest.mark.parametrize("diagonal", [-7, -1, 0, 2, 9])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 6), (6, 3)])
def test_a_triangle_costs_what_it_keeps(rows: int, columns: int, diagonal: int) -> None:
    result = TensorType(DType.F32, (Dim.static(rows), Dim.static(columns)))
    ones = torch.ones(rows, columns)
    kept = {Side.UPPER: ones.triu(diagonal), Side.LOWER: ones.tril(diagonal)}
    for side, matrix in kept.items():
        share = kept_share(Triangle(kept=side, diagonal=diagonal), result)
        assert share == matrix.sum().item() / (rows * columns)
    assert kept_share(None, result) == 1.0


def test_a_product_is_not_over_before_it_has_multiplied() -> None:
    layer = torch.nn.Linear(512, 512, bias=False)
    captured = capture_module(layer, (torch.ones(4096, 512),))
    (kernel,) = plan_graph(captured, H200, Library.NEVER).plan.kernels
    seconds = family_of(kernel).seconds(kernel, H200)
    assert seconds is not None and seconds > cost_of_kernel(kernel).floor_seconds(H200)
