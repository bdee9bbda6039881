"""Counters of batch norms: one call for all of them, and for nothing that is anything else."""

import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.codegen.python import forward_body
from kernelwright.ir.plan import Launch, Plan
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule


class Norms(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(count))
        self.last = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm in self.norms:
            x = norm(x).relu()
        result: torch.Tensor = self.last(x)
        assert self.last.num_batches_tracked is not None
        return result + self.last.num_batches_tracked


def plan_of(count: int, library: Library) -> Plan:
    graph = rewrite(capture_module(Norms(count), (torch.rand(4, 8),))).graph
    return schedule(graph, H200, library)


def test_many_counters_take_one_call() -> None:
    plan = plan_of(4, Library.WHERE_FASTER)
    assert [step.name for step in plan.left_to_pytorch] == ["aten._foreach_add_.Scalar"]
    assert plan.left_to_pytorch[0].why == "it counts for 4 modules at once"
    (line,) = (line for line in forward_body(program_of(plan)) if "_foreach_add_" in line)
    counters = [f"norms_{number}.num_batches_tracked" for number in range(4)]
    assert line.strip() == f"torch.ops.aten._foreach_add_.Scalar([{', '.join(counters)}], 1)"
    # What is read besides is no matter of counting alone.
    assert [it.path for it in plan.graph.updates if it.path.endswith("tracked")] == [
        "last.num_batches_tracked"
    ]


def test_few_counters_and_those_that_must_be_ours_are_launches() -> None:
    for plan in (plan_of(3, Library.WHERE_FASTER), plan_of(4, Library.NEVER)):
        assert plan.left_to_pytorch == ()
        counts = [it for it in plan.graph.updates if it.path.endswith("tracked")]
        made = {name for step in plan.steps if isinstance(step, Launch) for name in step.results}
        assert {it.value for it in counts} <= made
