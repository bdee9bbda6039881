"""Statements of the emitted `forward` that no example has."""

import re
import textwrap
from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.codegen.python import forward_body, parameters
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule


class Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
        return self.function(x, y)


def lines(function: Callable[..., object], *args: torch.Tensor) -> list[str]:
    graph = rewrite(capture_module(Function(function), args)).graph
    return [line.strip() for line in forward_body(program_of(schedule(graph, H200, Library.NEVER)))]


def test_what_joins_a_result_without_rows_gets_a_row() -> None:
    body = lines(
        lambda x, y: torch.einsum("bk,bkn->bn", x, y) + x, torch.ones(2, 3), torch.ones(2, 3, 3)
    )
    (launch,) = (line for line in body if line.startswith("_launch"))
    assert launch.count("unsqueeze(1)") == 3


def test_sizes_made_of_others_are_checked() -> None:
    body = lines(lambda x, y: x + y[1:], torch.ones(5), torch.ones(6))
    checks = [line for line in body if line.startswith("_expect")]
    assert checks[-1] == '_expect("y", y, torch.float32, (x_size0 + 1,), device)'
    assert "x_size0 = x.shape[0]" in body


def test_names_are_deleted_after_their_last_mention_only() -> None:
    body = lines(
        lambda x, y: torch.linalg.pinv(x.softmax(0).t() @ y.exp()).softmax(0),
        torch.ones(3, 4),
        torch.ones(3, 4),
    )
    for position, line in enumerate(body):
        if line.startswith("del "):
            for name in line.removeprefix("del ").split(", "):
                later = " ".join(body[position + 1 :])
                assert not re.search(rf"\b{name}\b", later)
    assert any(line.startswith("del ") for line in body)


def test_without_kernels_nothing_changes_for_gradients() -> None:
    body = lines(lambda x, y: torch.linalg.pinv(x), torch.ones(3, 3), torch.ones(3))
    assert not any("no_grad" in line or line.startswith("_expect") for line in body)


class Averages(nn.Module):
    """A batch norm, and perhaps what its buffer is or was."""

    def __init__(self, before: str) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.before = before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.norm.running_mean
        assert mean is not None
        others = {"unused": torch.zeros(4), "updated": mean, "called": mean.flip(0)}
        result: torch.Tensor = self.norm(x).amax(dim=(2, 3)) + others[self.before]
        return result


def update_text(before: str) -> str:
    graph = rewrite(capture_module(Averages(before), (torch.rand(3, 4, 5, 6),))).graph
    program = program_of(schedule(graph, H200, Library.NEVER))
    read = parameters(program)
    body = (*forward_body(program), *(read.operands if read else ()))
    return " ".join(line.strip() for line in body if "_expect" not in line)


def test_buffers_are_updated_where_they_are() -> None:
    text = update_text("unused")
    launch = text.partition("_launch(")[2]
    assert launch.count("norm.num_batches_tracked") == 2
    for name in ("running_mean", "running_var"):
        # Written as it is, which the native call reshapes; read as a view that is made once.
        assert launch.count(f"norm.{name}, ") == launch.count(f"norm.{name}.reshape(4, 1, 1)") == 1
        assert launch.count(f"norm.{name}") == 2
    assert "copy_" not in launch


@pytest.mark.parametrize("before", ["updated", "called"])
def test_a_buffer_that_others_read_is_updated_at_the_end(before: str) -> None:
    text = update_text(before)
    assert [part.rpartition(" ")[2] for part in text.split(".copy_(")[:-1]] == ["norm.running_mean"]
    assert text.count("norm.running_var, ") == 1


class Last(nn.Module):
    """A plain attribute with the last result: another tensor each time, or always the same."""

    def __init__(self, assigns: bool) -> None:
        super().__init__()
        self.last = torch.zeros(3)
        self.assigns = assigns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.assigns:
            self.last = x.exp()
        else:
            self.last.copy_(x.exp())
        return x + 1


def test_an_attribute_that_is_assigned_comes_to_lie_where_its_value_does() -> None:
    graph = rewrite(capture_module(Last(assigns=True), (torch.rand(3),))).graph
    body = list(forward_body(program_of(schedule(graph, H200, Library.NEVER))))
    (value,) = (update.value for update in graph.updates)
    first = next(at for at, line in enumerate(body) if "self.last" in line)
    update = textwrap.dedent("\n".join(body[first:-1]))
    module, result = Last(assigns=True), torch.rand(3)
    module.last = torch.empty(3, device="meta")  # as one that stayed behind
    exec(update, {"self": module, value: result})
    kept = module.last
    exec(update, {"self": module, value: 2 * result})
    assert kept is module.last is not result
    assert torch.equal(kept, 2 * result)


def test_an_attribute_that_is_written_stays_where_it_is() -> None:
    graph = capture_module(Last(assigns=False), (torch.rand(3),))
    assert [(it.path, it.is_assigned) for it in graph.updates] == [("last", False)]
