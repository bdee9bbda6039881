"""Products of one left factor in one launch."""

from dataclasses import replace

import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Launch, Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.kernels import source
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.families import family_of
from kernelwright.schedule.together import MOST_TOGETHER

WIDTH = 512


class Heads(nn.Module):
    """Layers of one input, some of them of other sizes."""

    def __init__(self, *sizes: int, bias: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, size, bias=bias) for size in sizes)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [layer(x) for layer in self.layers]


class Chain(Heads):
    """The second layer's result is added to the first one's, as that is to the input."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        first = self.layers[0](x) + x
        return [first, self.layers[1](x) + first]


def planned(module: nn.Module, dtype: torch.dtype = torch.float32) -> Plan:
    """The plan, after its steps have given what the module gives."""
    module, x = module.to(dtype), torch.rand(4096, WIDTH, dtype=dtype)
    plan = plan_graph(capture_module(module, (x,)), H200).plan
    if dtype is torch.float32:
        for found, wanted in zip(run_plan(plan, module, (x,)), module(x), strict=True):
            torch.testing.assert_close(found, wanted)
    return plan


def counts(plan: Plan) -> list[int]:
    """Products of each launch of them."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return [it.kernel.together for it in launches if it.kernel.family == "gemm"]


def test_layers_of_one_input_are_one_launch() -> None:
    plan = planned(Heads(WIDTH, WIDTH, WIDTH))
    assert counts(plan) == [3]
    (kernel,) = plan.kernels
    config = kernel.configured(TensorCoreConfig)
    assert config.feed is Feed.SPLIT and not config.transposed
    alone = kernel.one_product
    assert alone.inputs == kernel.inputs[:3] and len(alone.outputs) == 1
    one, several = (family_of(it).seconds(it, H200) for it in (alone, kernel))
    assert one < several < 3 * one
    work = [family_of(it).cost(it).flops for it in (alone, kernel)]
    assert work[1] == 3 * work[0]


def test_a_launch_has_three_products_at_most() -> None:
    assert sorted(counts(planned(Heads(*[WIDTH] * 5)))) == [2, 3]
    assert f"MOST_TOGETHER = {MOST_TOGETHER};" in source("gemm_rest.cuh")


def test_another_plan_has_the_same_launches() -> None:
    module = Heads(WIDTH, WIDTH)
    full, small = (capture_module(module, (torch.rand(rows, WIDTH),)) for rows in (4096, 3))
    choices = plan_graph(full, H200).choices
    assert len(choices.together or ()) == 1
    apart = replace(choices, together=frozenset())
    assert counts(plan_graph(small, H200, Library.NEVER, choices).plan) == [2]
    assert counts(plan_graph(full, H200, choices=apart).plan) == [1, 1]


def test_layers_of_other_sizes_stay_apart() -> None:
    assert sorted(counts(planned(Heads(WIDTH, 2 * WIDTH, 2 * WIDTH)))) == [1, 2]


def test_a_layer_that_waits_for_another_one_stays_apart() -> None:
    assert counts(planned(Chain(WIDTH, WIDTH))) == [1, 1]


def test_16_bits_have_no_factors_to_split() -> None:
    assert set(counts(planned(Heads(WIDTH, WIDTH), torch.bfloat16))) <= {1}
