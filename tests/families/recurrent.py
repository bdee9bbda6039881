"""Problem: two layers of LSTM in both directions, a GRU on what they give, and a cell in a loop."""

import torch
from torch import nn

STEPS, BATCH = 5, 9


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = nn.LSTM(6, 20, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(40, 13, bias=False)
        self.cell = nn.Linear(20 + 7, 7)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (_, cells) = self.lstm(x, (h, h * 2))
        z, last = self.gru(y.transpose(0, 1))
        state = last[0, :, :7]
        states = []
        for t in range(4):
            both = [h[t], state]
            state = torch.tanh(self.cell(torch.cat(both, 1)))
            states.append(state.relu())
        return torch.relu(z), torch.stack(states), last, cells


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(BATCH, STEPS, 6), torch.rand(4, BATCH, 20)]


def get_init_inputs() -> list[object]:
    return []
