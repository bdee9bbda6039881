"""Calls as CUDA graphs: what is recorded when, and what is kept. Without a GPU, by a stand-in."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import kernelwright as kw
from kernelwright.graphs import Graphed, GraphError
from kernelwright.machine import H200
from kernelwright.module import optimize_module


class Recorder:
    """Stands in for a CUDA graph: a replay computes again what was recorded, where it was."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        call()
        results = call()

        def replay() -> None:
            for mine, new in zip(tree_leaves(results), tree_leaves(call()), strict=True):
                mine.copy_(new)

        return replay, results


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, by: float = 1.0, more: Any = None) -> dict[str, Tensor]:
        return {"y": self.norm(x) * self.scale * by}


@pytest.fixture
def model() -> Scaled:
    torch.manual_seed(0)
    return Scaled().eval()


def test_each_set_of_shapes_is_recorded_once(model: Scaled) -> None:
    record = Recorder()
    replay = Graphed(model, capture=record)
    results = []
    with torch.no_grad():
        for rows in (3, 5, 3, 5, 3):
            x = torch.rand(rows, 4)
            results.append((replay(x)["y"], model(x)["y"]))
        assert record.recorded == 2
        replay(torch.rand(4, 3).t())
        replay(torch.rand(3, 4), by=2.0)
        assert record.recorded == 4
    for found, expected in results:  # No later call has changed them.
        torch.testing.assert_close(found, expected)
    first = replay.kept[0]
    assert (first.arguments, first.input_bytes, first.result_bytes) == (("float32[5, 4]",), 80, 80)
    assert first.replays == 2
    replay.forget()
    assert replay.kept == ()


def test_the_graphs_used_last_are_kept(model: Scaled) -> None:
    record = Recorder()
    replay = Graphed(model, limit=2, capture=record)
    with torch.no_grad():
        for rows in (1, 2, 1, 3, 1, 2):
            replay(torch.rand(rows, 4))
    assert record.recorded == 4
    assert [graph.arguments for graph in replay.kept] == [("float32[1, 4]",), ("float32[2, 4]",)]


@pytest.mark.parametrize(
    ("change", "records"),
    [
        (lambda it: setattr(it, "scale", nn.Parameter(torch.rand(4))), 2),
        (lambda it: setattr(it.scale, "data", torch.rand(4)), 2),
        (lambda it: setattr(it, "norm", nn.BatchNorm1d(4, eps=0.5).eval()), 2),
        (lambda it: it.double().float(), 2),
        (lambda it: setattr(it.norm, "bias", it.scale), 2),
        (lambda it: it.scale.mul_(2), 1),
        (lambda it: it.load_state_dict(Scaled().state_dict()), 1),
    ],
)
def test_a_change_of_the_module_is_seen(
    model: Scaled, change: Callable[[Any], object], records: int
) -> None:
    record, x = Recorder(), torch.rand(3, 4)
    replay = Graphed(model, capture=record)
    with torch.no_grad():
        replay(x)
        change(model)
        torch.testing.assert_close(replay(x), model(x))
    assert record.recorded == records


def test_a_recording_changes_no_averages_of_its_own(model: Scaled) -> None:
    other, x = copy.deepcopy(model).train(), torch.rand(3, 4)
    model.train()
    with torch.no_grad():
        torch.testing.assert_close(Graphed(other, capture=Recorder())(x), model(x))
    torch.testing.assert_close(other.state_dict(), model.state_dict())


class Writing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


def test_what_cannot_be_a_graph_is_refused(model: Scaled) -> None:
    x = torch.rand(3, 4)
    with pytest.raises(GraphError, match="no backward"):
        Graphed(model, capture=Recorder())(x)
    with torch.no_grad():
        with pytest.raises(GraphError, match="writes to its arguments"):
            Graphed(Writing(), capture=Recorder())(x)
        with pytest.raises(GraphError, match="cannot be compared"):
            Graphed(model, capture=Recorder())(x, more={1, 2})
        if not torch.cuda.is_available():
            with pytest.raises(GraphError, match="needs a GPU"):
                optimize_module(model, (x,), machine=H200).graphed(x)


@pytest.mark.gpu
def test_graphs_on_a_gpu_give_what_calls_give() -> None:
    model = Scaled().cuda().eval()
    x = torch.rand(64, 4, device="cuda")
    with torch.no_grad():
        fast = optimize_module(model, (x,), machine=H200)
        replay = fast.graphed(x)
        for rows in (64, 32, 64):
            x = torch.rand(rows, 4, device="cuda")
            torch.testing.assert_close(replay(x), model(x))
        fast.scale = nn.Parameter(torch.rand(4, device="cuda"))
        torch.testing.assert_close(replay(x), fast(x))
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.testing.assert_close(kw.Graphed(model)(x), model(x))
        with pytest.raises(GraphError, match="is on cpu"):
            replay(x.cpu())
