"""Loops that carry a value: a moving average, a linear recurrence, a state-space model's states."""

import torch
from torch import Tensor, nn

BATCH = 3
WIDTH = 5
STEPS = 6
LONG = 37
"""More steps than a thread reads ahead."""


class Model(nn.Module):
    """Each loop as people write it, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(0.2, 0.9, WIDTH))
        self.gain = nn.Parameter(torch.linspace(1.0, 0.5, WIDTH))
        self.rates = nn.Parameter(-torch.linspace(0.1, 1.0, 4 * WIDTH).view(WIDTH, 4))

    def forward(self, x: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        mean = x[:, 0]
        means = [mean]
        for t in range(1, LONG):
            mean = 0.9 * mean + 0.1 * x[:, t]
            means.append(mean)
        held = torch.zeros_like(x[:, 0])
        for t in range(LONG):
            held = torch.tanh(self.decay * held + self.gain * x[:, t])
        state = torch.zeros(x.shape[0], WIDTH, 4, dtype=x.dtype)
        seen = []
        for t in range(STEPS):
            step = dt[:, t].unsqueeze(-1)
            state = torch.exp(step * self.rates) * state + step * b[:, t].unsqueeze(1)
            seen.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(means, 1), held, torch.stack(seen, 1)


def get_inputs() -> list[Tensor]:
    return [
        torch.rand(BATCH, LONG, WIDTH),
        torch.rand(BATCH, STEPS, WIDTH),
        torch.rand(BATCH, STEPS, 4),
        torch.rand(BATCH, STEPS, 4),
    ]


def get_init_inputs() -> list[object]:
    return []
