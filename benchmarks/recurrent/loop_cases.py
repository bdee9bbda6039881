"""Loops that carry a value, as people write them: three problems at two sizes each."""

from dataclasses import dataclass

_STEPS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCase:
    """One problem and its sizes."""

    kind: str
    """A key of `_MODELS`."""
    batch: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.batch}x{_STEPS}x{self.width}"

    @property
    def text(self) -> str:
        """The problem's file."""
        sizes = f"BATCH, STEPS, WIDTH, STATES = {self.batch}, {_STEPS}, {self.width}, 16\n"
        return f"import torch\nfrom torch import nn\n\n{sizes}{_MODELS[self.kind]}{_NO_ARGUMENTS}"


_NO_ARGUMENTS = """

def get_init_inputs():
    return []
"""
_MODELS = {
    "moving_average": '''

class Model(nn.Module):
    """An exponential moving average of a sequence."""

    def forward(self, x):
        mean = x[:, 0]
        means = [mean]
        for t in range(1, STEPS):
            mean = 0.9 * mean + 0.1 * x[:, t]
            means.append(mean)
        return torch.stack(means, 1)


def get_inputs():
    return [torch.rand(BATCH, STEPS, WIDTH)]
''',
    "linear_recurrence": '''

class Model(nn.Module):
    """A gated linear recurrence: each step has a gate of its own."""

    def forward(self, gate, x):
        state = torch.zeros_like(x[:, 0])
        states = []
        for t in range(STEPS):
            state = gate[:, t] * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)


def get_inputs():
    return [torch.rand(BATCH, STEPS, WIDTH), torch.rand(BATCH, STEPS, WIDTH)]
''',
    "state_space": '''

class Model(nn.Module):
    """A selective state-space model: step sizes, inputs and outputs differ from step to step."""

    def __init__(self):
        super().__init__()
        rates = torch.linspace(0.1, 1.0, WIDTH * STATES).view(WIDTH, STATES)
        self.rates = nn.Parameter(-rates)

    def forward(self, x, dt, b, c):
        state = torch.zeros(x.shape[0], WIDTH, STATES, dtype=x.dtype, device=x.device)
        outputs = []
        for t in range(STEPS):
            step = dt[:, t].unsqueeze(-1)
            inputs = (dt[:, t] * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            state = torch.exp(step * self.rates) * state + inputs
            outputs.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(outputs, 1)


def get_inputs():
    rows = [torch.rand(BATCH, STEPS, WIDTH) for _ in range(2)]
    return [*rows, *(torch.rand(BATCH, STEPS, STATES) for _ in range(2))]
''',
}

CASES = tuple(
    LoopCase(kind=kind, batch=batch, width=width)
    for kind, sizes in (
        ("moving_average", ((16, 256), (64, 2048))),
        ("linear_recurrence", ((16, 256), (32, 2048))),
        ("state_space", ((2, 256), (8, 1024))),
    )
    for batch, width in sizes
)
