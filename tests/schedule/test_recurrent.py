"""Which recurrent layers are ours, and why others are the library's."""

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import RefusedCallError, run_graph
from kernelwright.ir.kinds import Opaque
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.recurrent_configs import RecurrentConfig
from kernelwright.machine import A100, H200, Machine
from kernelwright.schedule import Library, schedule


class Last(nn.Module):
    """The last element of what recurrent layers give, a result that is read alone."""

    def __init__(self, layers: nn.RNNBase) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.layers(x)
        return sequence[-1]


@pytest.mark.parametrize(
    ("layers", "steps", "batch", "why"),
    [
        (nn.LSTM(128, 256, 6), 512, 10, None),
        (nn.LSTM(128, 256, 6, bidirectional=True), 512, 10, None),
        (nn.GRU(128, 256, 6, batch_first=True), 64, 10, None),
        (nn.LSTM(128, 256, 2), 256, 256, None),
        (nn.RNN(128, 256, 6), 512, 10, None),
        (nn.RNN(128, 256, 6, nonlinearity="relu"), 512, 10, "no bound"),
        (nn.RNN(128, 256, 2, nonlinearity="relu", dtype=torch.bfloat16), 512, 10, None),
        (nn.LSTM(128, 256, proj_size=32), 512, 10, "projected"),
        (nn.RNN(40, 200), 100, 20, "the library"),
        (nn.GRU(40, 100), 100, 20, "the library"),  # one kernel of cuDNN takes all its steps
        (nn.LSTM(16, 257), 512, 10, "more than 256 hidden units"),
        (nn.LSTM(2048, 256), 512, 10, "2048 inputs"),
        (nn.GRU(16, 16, 33), 2, 10, "more than 32 layers"),
        (nn.LSTM(16, 512, 2, dtype=torch.float16), 512, 10, None),
        (nn.GRU(16, 256, 2, dtype=torch.bfloat16), 512, 10, None),
        (nn.LSTM(16, 513, dtype=torch.float16), 512, 10, "more than 512 hidden units"),
        (nn.LSTM(16, 256, dtype=torch.float64), 512, 10, "other numbers than float32"),
    ],
)
def test_who_takes_layers(layers: nn.RNNBase, steps: int, batch: int, why: str | None) -> None:
    sizes = (batch, steps) if layers.batch_first else (steps, batch)
    dtype = layers.weight_ih_l0.dtype
    graph = capture_module(Last(layers), (torch.zeros(*sizes, layers.input_size, dtype=dtype),))
    plan = schedule(graph, H200)
    kernel = next((it for it in plan.kernels if it.family == "recurrent"), None)
    if why is None:
        assert kernel is not None and not plan.left_to_pytorch
        assert kernel.configured(RecurrentConfig).part == layers.hidden_size
        assert len(kernel.outputs) == 1
    else:
        assert kernel is None
        (left,) = (step for step in plan.left_to_pytorch if step.name.endswith(".input"))
        assert why in left.why


@pytest.mark.parametrize(("machine", "count"), [(H200, 1), (A100, 0)])
def test_where_there_are_no_clusters_they_are_pytorchs(machine: Machine, count: int) -> None:
    graph = capture_module(nn.GRU(8, 8), (torch.zeros(3, 2, 8),))
    plan = schedule(graph, machine, Library.NEVER)
    assert sum(kernel.family == "recurrent" for kernel in plan.kernels) == count


@pytest.mark.parametrize(
    "layers", [nn.LSTM(4, 6, 2, bidirectional=True), nn.RNN(4, 6, nonlinearity="relu")]
)
def test_a_sequence_needs_a_step_as_in_pytorch(layers: nn.RNNBase) -> None:
    graph = capture_module(layers, (torch.zeros(3, 2, 4),))
    assert [str(it.condition) for it in graph.guards if "step" in it.message] == ["s0 >= 1"]
    with pytest.raises(RuntimeError, match="length"):
        layers(torch.zeros(0, 2, 4))
    with pytest.raises(RefusedCallError, match="step"):
        run_graph(graph, layers, (torch.zeros(0, 2, 4),), {})


def test_layers_that_drop_elements_stay_a_call() -> None:
    graph = capture_module(nn.LSTM(8, 8, 2, dropout=0.5), (torch.zeros(3, 2, 8),))
    assert isinstance(graph["lstm"].kind, Opaque)
    graph = capture_module(nn.LSTM(8, 8, 2, dropout=0.5).eval(), (torch.zeros(3, 2, 8),))
    assert isinstance(graph["lstm"].kind, Recurrent)
