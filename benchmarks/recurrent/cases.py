"""Recurrent modules that are timed: those of KernelBench level 3, and others of users' sizes."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One module and its sizes; first states given, time before batch."""

    name: str
    cell: Literal["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]
    batch: int
    steps: int = 512
    inputs: int = 128
    hidden: int = 256
    layers: int = 6
    directions: int = 1
    dtype: torch.dtype = torch.float32

    def module(self, device: str = "cuda") -> nn.RNNBase:
        """PyTorch's."""
        sizes = (self.inputs, self.hidden, self.layers)
        both = self.directions == 2
        if self.cell.startswith("RNN"):
            rule = self.cell.removeprefix("RNN_").lower()
            made: nn.RNNBase = nn.RNN(*sizes, nonlinearity=rule, bidirectional=both)
        else:
            made = {"LSTM": nn.LSTM, "GRU": nn.GRU}[self.cell](*sizes, bidirectional=both)
        return made.to(device, self.dtype).eval()

    def sequence(self, device: str = "cuda") -> torch.Tensor:
        """An input of [0, 1)."""
        shape = (self.steps, self.batch, self.inputs)
        return torch.rand(shape, device=device).to(self.dtype)

    def first_states(self) -> list[torch.Tensor]:
        """Of [0, 1), on the card."""
        shape = (self.layers * self.directions, self.batch, self.hidden)
        count = 2 if self.cell == "LSTM" else 1
        return [torch.rand(shape, device="cuda").to(self.dtype) for _ in range(count)]

    def serial_steps(self) -> int:
        """Steps one after the other: layers of one direction overlap."""
        if self.directions == 2:
            return self.layers * self.steps
        return self.steps + self.layers - 1


CASES = (
    Case(name="lstm35", cell="LSTM", batch=10),
    Case(name="lstm38", cell="LSTM", batch=10, directions=2),
    Case(name="gru39", cell="GRU", batch=10),
    Case(name="gru41", cell="GRU", batch=10, directions=2),
    Case(name="cell", cell="LSTM", batch=10, inputs=256, layers=1),
    Case(name="cell2048", cell="LSTM", batch=10, inputs=256, layers=1, steps=2048),
    Case(name="lstm32", cell="LSTM", batch=32, steps=256, layers=2),
    Case(name="lstm1", cell="LSTM", batch=1, steps=256, layers=2),
    Case(name="lstm64", cell="LSTM", batch=64, steps=256, layers=2),
    Case(name="lstm256", cell="LSTM", batch=256, steps=256, layers=2),
    Case(name="small", cell="GRU", batch=20, steps=100, inputs=40, hidden=100, layers=1),
    Case(name="long", cell="LSTM", batch=10, steps=2048, layers=2),
)
