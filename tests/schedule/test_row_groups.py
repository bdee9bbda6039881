"""What joins a reduction, a scan or a pooling, and what the kernel then reads and writes."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import Extent
from kernelwright.ir.kinds import Contract
from kernelwright.ir.plan import Launch, Plan
from kernelwright.ir.types import Dim, DType
from kernelwright.lower.rematerialisation import with_cheap_copies
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.planning import Choices


class Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(8)
        self.group_norm = nn.GroupNorm(2, 8)
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(self, *args)


def plan(function: Callable[..., object], *args: torch.Tensor) -> Plan:
    captured = capture_module(Function(function), args)
    return plan_graph(captured, H200, Library.NEVER).plan


def plan_without_products(function: Callable[..., object], *args: torch.Tensor) -> Plan:
    """The plan of a function all of whose products are left to the library."""
    captured = capture_module(Function(function), args)
    calls = (node.part_of for node in captured.nodes if isinstance(node.kind, Contract))
    left = {call.result: "left" for call in calls if call is not None}
    return plan_graph(captured, H200, Library.NEVER, Choices(left=left)).plan


def launches(result: Plan) -> list[tuple[str, ...]]:
    return [step.kernel.operators for step in result.steps if isinstance(step, Launch)]


ROWS = (torch.randn(4, 8), torch.randn(4, 8))
IMAGES = (torch.randn(2, 8, 6, 6),)


def test_softmax_and_its_neighbours_are_one_kernel() -> None:
    result = plan(lambda m, x, y: (x * 2 + y).softmax(-1).log(), *ROWS)
    assert launches(result) == [("mul", "add", "softmax", "log")]
    (kernel,) = result.kernels
    assert kernel.family == "rows"
    assert len(kernel.inputs) == 2 and len(kernel.anchor.folds) == 1


def test_a_residual_is_read_once_and_both_results_are_written() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        total = torch.tanh(x.exp() * y.exp()) + y
        return m.norm(total), total + 1

    result = plan(function, *ROWS)
    (first, *_) = result.kernels
    assert first.family == "rows"
    assert [it.extent for it in first.anchor.results].count(Extent.ELEMENT) >= 1
    assert {kind.rank for kind in first.inputs} >= {2}


def test_reductions_over_the_same_rows_merge_and_over_others_do_not() -> None:
    same = plan(lambda m, x, y: (x.sum(1), x.amax(1), (x * y).mean(1)), *ROWS)
    assert len(same.kernels) == 1
    (kernel,) = same.kernels
    assert kernel.family == "rows" and len(kernel.anchor.results) == 3
    other = plan(lambda m, x, y: (x.sum(1), x.sum(0)), *ROWS)
    assert len(other.kernels) == 2


def test_totals_that_need_others_come_in_levels() -> None:
    result = plan(lambda m, x, y: ((x - x.mean(1, keepdim=True)) ** 2).mean(1), *ROWS)
    (kernel,) = result.kernels
    assert kernel.family == "rows"
    assert kernel.anchor.levels == ((0,), (1,))


def test_a_value_that_waits_for_the_group_outside_does_not_join() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        scale = x.sum(1, keepdim=True)
        outside = torch.linalg.pinv(scale @ scale.mT)
        return x * scale + outside[:, :1]

    result = plan(function, *ROWS)
    names = launches(result)
    assert names[0] == ("sum",)
    assert ("mul", "add") in names


def test_convolution_bias_and_activation_join_the_norm_behind_a_view() -> None:
    module = Function(lambda m, x: m.group_norm(torch.sigmoid(m.conv(x))))
    result = plan_graph(capture_module(module, IMAGES), H200).plan
    assert [step.name for step in result.left_to_pytorch] == ["aten.conv2d.default"]
    (kernel,) = result.kernels
    assert kernel.operators == ("bias", "sigmoid", "group_norm")


def test_a_norm_that_only_a_reduction_reads_is_never_written() -> None:
    result = plan(lambda m, x: m.group_norm(x).mean((1, 2, 3)), *IMAGES)
    assert all(
        it.extent is Extent.ROW
        for kernel in result.kernels
        if kernel.family == "rows"
        for it in kernel.anchor.results
    )
    assert len(result.kernels) == 2


def test_training_statistics_are_results_of_the_norm() -> None:
    result = plan(lambda m, x: m.batch_norm(x), *IMAGES)
    (kernel,) = (it for it in result.kernels if it.family == "rows")
    extents = [it.extent for it in kernel.anchor.results]
    assert sorted(extents) == [Extent.ELEMENT, Extent.ROW, Extent.ROW]


def test_a_cheap_step_with_two_readers_is_computed_twice() -> None:
    result = plan(lambda m, x, y: ((x * 2).sum(0), (x * 2).amax(1)), *ROWS)
    assert launches(result) == [("mul", "sum"), ("mul", "amax")]


def test_a_step_on_totals_is_computed_once() -> None:
    function = Function(lambda m, x: (x.mean(2, keepdim=True) + m.norm.weight[0]).softmax(1))
    graph = capture_module(function, IMAGES)
    assert with_cheap_copies(graph).nodes == graph.nodes


def test_a_scan_takes_the_steps_around_it() -> None:
    result = plan(lambda m, x, y: torch.cumsum(x * y, 1).relu() + y, *ROWS)
    (kernel,) = result.kernels
    assert kernel.family == "scan"
    assert kernel.operators == ("mul", "cumsum", "relu", "add")


def test_rows_join_a_product_only_behind_its_epilogue() -> None:
    result = plan(lambda m, x, y: functional.relu(x @ y.mT).softmax(-1), *ROWS)
    assert launches(result) == [("matmul", "relu"), ("softmax",)]


def test_16_bits_become_float32_where_rows_are_read() -> None:
    x, y = (it.bfloat16() for it in ROWS)
    after = plan(lambda m, x, y: (x @ y.mT + 1).float().softmax(-1), x, y)
    assert launches(after) == [("matmul", "add"), ("_to_copy", "softmax")]

    def with_residual(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        total = x @ y.mT + 1
        return functional.rms_norm(total, (4,)) @ x, total * y[:, :4]

    both = plan(with_residual, x, y)
    assert launches(both)[:2] == [("matmul", "add"), ("rms_norm",)]
    assert sorted(it for step in launches(both)[2:] for it in step) == ["matmul", "mul"]


SEQUENCES = tuple(it.bfloat16() for it in (torch.randn(2, 3, 8), torch.randn(8, 8)))


def _of_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A layer that joins all dimensions but the last for its product, as GPT-2's do."""
    return torch.addmm(weight[0], x.view(-1, 8), weight).view(x.shape)


def test_residual_and_norm_between_products_of_joined_rows_are_one_kernel() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        total = _of_rows(x, y) + x
        normed = functional.layer_norm(total, (8,))
        again = _of_rows(normed, y) + total
        return _of_rows(functional.layer_norm(again, (8,)), y)

    result = plan_without_products(function, *SEQUENCES)
    assert launches(result) == [("add", "layer_norm"), ("add", "layer_norm")]
    first, second = (step.kernel for step in result.steps if isinstance(step, Launch))
    assert [kind.rank for kind in (*first.inputs, *first.outputs)] == [2, 2, 2, 2]
    assert len(second.outputs) == 1
    assert not {DType.F32} & {kind.dtype for kind in (*first.outputs, *second.outputs)}


def test_all_steps_on_a_product_of_joined_rows_are_one_kernel() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        found = _of_rows(x, y)
        return _of_rows(0.5 * found * torch.tanh(found + found * found), y)

    result = plan_without_products(function, *SEQUENCES)
    assert launches(result) == [("mul", "add", "tanh", "mul")]


def test_moments_of_a_reshape_are_of_what_was_reshaped() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        return functional.layer_norm((x @ y.mT).view(2, 2, 4), (4,))

    (_, norm) = plan(function, *ROWS).kernels
    assert norm.anchor.shape == (Dim.static(4), Dim.static(4))

    def of_parts(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        return functional.layer_norm((x @ y.mT).view(8, 2), (2,))

    (_, norm) = plan(of_parts, *ROWS).kernels
    assert norm.anchor.shape == (Dim.static(8), Dim.static(2))


def test_a_norm_of_each_head_is_one_kernel_behind_a_product() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        heads = functional.linear(x, y).view(2, 3, 2, 4)
        return functional.rms_norm(heads, (4,)).transpose(1, 2) * 2

    assert launches(plan_without_products(function, *SEQUENCES)) == [("rms_norm", "mul")]
    ours = plan(function, *SEQUENCES)
    assert launches(ours) == [("linear",), ("rms_norm", "mul")]
    assert [step.kernel.output.dtype for step in ours.steps if isinstance(step, Launch)] == (
        [DType.BF16] * 2
    )


def test_a_sum_with_an_earlier_product_is_an_epilogue_of_the_later_one() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        first = x @ y
        second = first @ x + first
        return second.softmax(-1), second

    x = torch.randn(8, 8)
    assert launches(plan(function, x, x)) == [("matmul",), ("matmul", "add"), ("softmax",)]


def test_a_view_of_totals_does_not_part_the_next_reduction() -> None:
    result = plan(lambda m, x: x.amin(2).softmax(1), *IMAGES)
    assert launches(result) == [("amin",), ("softmax",)]


def test_steps_for_products_join_the_rows_that_they_read() -> None:
    def layers(m: Function, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.silu(x) @ y.mT + m.norm(x) @ y.mT

    assert ("silu", "layer_norm") in launches(plan(layers, *ROWS))


def test_steps_that_others_read_stay_apart() -> None:
    def both(m: Function, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [functional.silu(x), m.norm(x)]

    assert launches(plan(both, *ROWS)) == [("silu",), ("layer_norm",)]
