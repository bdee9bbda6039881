"""Parts of a tensor that launches write where they belong."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.codegen.cuda import cuda_source
from kernelwright.codegen.python import forward_body
from kernelwright.ir.plan import Launch, Plan, Room
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.schedule import OPEN, Choices, Library, plan_graph

LARGE = (16, 8, 128, 128)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Dense(nn.Module):
    """Each layer reads all features before it."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        widths = [8 + 4 * number for number in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)
        self.convolutions = nn.ModuleList(nn.Conv2d(width, 4, 3, padding=1) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            features.append(convolution(norm(torch.cat(features, 1)).relu()))
        return torch.cat(features, 1)


def planned(
    module: nn.Module | Callable[..., Tensor],
    *,
    sizes: tuple[int, ...] = LARGE,
    library: Library = Library.WHERE_FASTER,
    choices: Choices = OPEN,
) -> Plan:
    """The plan, after its steps have given what the module gives."""
    module = module if isinstance(module, nn.Module) else Function(module)
    graph = capture_module(module, (torch.empty(sizes),))
    plan = plan_graph(graph, H200, library, choices).plan
    x = torch.rand(2, *sizes[1:-1], 6) if len(sizes) == 4 else torch.rand(sizes)
    module.eval()  # statistics of batches have other sums in another order
    small = plan_graph(
        capture_module(module, (x,)), H200, library, plan_graph(graph, H200, library).choices
    )
    torch.testing.assert_close(run_plan(small.plan, module, [x]), module(x))
    return plan


def rooms(plan: Plan) -> dict[str, str]:
    """What is part of what."""
    return {
        step.result: "" if step.within is None else step.within.whole
        for step in plan.steps
        if isinstance(step, Room)
    }


def left(plan: Plan) -> list[str]:
    return [step.name for step in plan.left_to_pytorch]


def launches(plan: Plan) -> list[tuple[str, ...]]:
    return [step.kernel.operators for step in plan.steps if isinstance(step, Launch)]


def test_steps_write_where_the_whole_has_their_results() -> None:
    plan = planned(lambda x: torch.cat([x.exp(), x + 1.0], 1))
    assert left(plan) == []
    assert launches(plan) == [("exp",), ("add",)]
    assert rooms(plan) == {"cat": "", "exp": "cat", "add": "cat"}
    text = cuda_source(plan)
    assert "const Tensor exp = sliced(cat, 4, 1, 0, size0, 1);" in text
    assert "const Tensor add = sliced(cat, 4, 1, size0, size0, 1);" in text
    assert forward_body(program_of(plan))[-1] == "return cat"


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_along_any_dimension(dim: int) -> None:
    plan = planned(
        lambda x: torch.cat([x.exp().narrow(0, 0, 2), x.narrow(0, 0, 2) + 1.0], dim),
        sizes=(2, 8, 256, 2048),
        library=Library.NEVER,
    )
    assert left(plan) == []
    assert "cat" in rooms(plan)


def test_other_parts_are_copied() -> None:
    plan = planned(
        lambda x: torch.cat([x.exp(), x, x.softmax(-1), x.exp()], 1), library=Library.NEVER
    )
    assert left(plan) == []
    # Of what is there twice one is a copy of the other.
    assert launches(plan).count(("cat",)) == 3
    assert sum(whole == "cat" for whole in rooms(plan).values()) == 4


def test_what_others_want_in_one_piece_is_copied() -> None:
    def returned(x: Tensor) -> Tensor:
        y = x.exp()
        return torch.cat([y, x + 1.0], 1) + torch.sort(y, dim=-1).values.repeat(1, 2, 1, 1)

    plan = planned(returned)
    assert "exp" not in rooms(plan)
    assert "add" in rooms(plan)


def test_readers_that_are_ours_read_the_part() -> None:
    def both(x: Tensor) -> Tensor:
        y = x.exp() + x.cos()
        whole = torch.cat([y, x + 1.0], 1)
        return torch.sort(whole, dim=-1).values + y.softmax(-1).repeat(1, 2, 1, 1)

    plan = planned(both)
    assert list(rooms(plan).values()) == ["", "cat", "cat"]
    assert left(plan) == ["aten.sort.default"]


def test_features_of_a_dense_block_are_in_memory_once() -> None:
    plan = planned(Dense())
    assert "aten.cat.default" not in left(plan)
    inside = rooms(plan)
    wholes = {name: whole for name, whole in inside.items() if name.startswith("cat")}
    assert wholes == {
        **{"cat": "cat_1", "cat_1": "cat_2", "cat_2": "cat_3", "cat_3": "cat_4", "cat_4": ""}
    }
    assert launches(plan).count(("cat",)) == 1  # of the argument
    assert [name for name, whole in inside.items() if whole == "cat_4"] == ["cat_3", "conv2d_3"]


def test_a_whole_that_pytorch_reads_is_no_part_of_another() -> None:
    def sorted_between(x: Tensor) -> Tensor:
        first = torch.cat([x.exp(), x.cos()], 1)
        return torch.cat([first, torch.sort(first, dim=-1).values + 1.0], 1)

    plan = planned(sorted_between)
    assert rooms(plan)["cat"] == ""
    assert "cat_part" in rooms(plan)


def test_a_whole_is_part_of_the_next() -> None:
    def grown(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.cat([x.exp(), x.sum(1, keepdim=True).cos()], 1)
        return x

    plan = planned(grown)
    assert "aten.cat.default" not in left(plan)

    def kept(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.cat([x, x.sum(1, keepdim=True).cos()], 1)
        return x

    plan = planned(kept)
    assert [whole for name, whole in rooms(plan).items() if name.startswith("cat")] == [
        "",
        "cat_2",
        "cat_1",
    ]


def test_little_is_left_to_pytorch() -> None:
    plan = planned(lambda x: torch.cat([x.exp(), x + 1.0], 1), sizes=(4, 8, 16, 16))
    assert left(plan) == ["aten.cat.default"]
    assert not rooms(plan)


def test_nothing_saved_is_left_to_pytorch() -> None:
    plan = planned(lambda x: torch.cat([x, x.softmax(-1)], 1))
    assert left(plan) == ["aten.cat.default"]


def test_short_runs_are_left_to_pytorch() -> None:
    plan = planned(lambda x: torch.cat([x.exp(), x + 1.0], -1), sizes=(1 << 20, 8))
    assert left(plan) == ["aten.cat.default"]


def test_another_plan_does_the_same_at_other_sizes() -> None:
    module = Function(lambda x: torch.cat([x.exp(), x + 1.0], 1))
    first = plan_graph(capture_module(module, (torch.empty(LARGE),)), H200)
    assert first.choices.in_place == {"cat"}
    small = capture_module(module, (torch.empty(2, 8, 3, 5),))
    assert left(plan_graph(small, H200).plan) == ["aten.cat.default"]
    assert left(plan_graph(small, H200, choices=first.choices).plan) == []
