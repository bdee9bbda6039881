"""Random graphs of up to 12 operators, many to a module: test_random_graphs.py fills them in."""

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS = []
"""One for each graph; a step names an operation, two of the values so far, and a variant."""


def dims_of(x, how):
    """Some dimensions of `x`, at least one."""
    chosen = tuple(d for d in range(x.dim()) if how >> d & 1)
    return chosen or (x.dim() - 1,)


def like(x, y):
    """Something of `y` that broadcasts to `x`."""
    while y.dim() > x.dim():
        y = y[0]
    for dim in range(1, y.dim() + 1):
        if y.shape[-dim] not in (1, x.shape[-dim]):
            y = y.narrow(-dim, 0, 1)
    return y


def pool(x, how):
    """A pooling of three dimensions, something else of others."""
    if x.dim() != 3 or x.shape[-1] < 3:
        return x + 1
    return F.max_pool1d(x, 2, 1 + how % 2) if how % 3 else F.avg_pool1d(x, 3, 1, 1)


def beside(x, y, how):
    """Steps on `x` side by side, and `x` itself, unless that is much."""
    if x.numel() > 200:
        return x * 2
    parts = [torch.cos(x), x, x * like(x, y), torch.cat([x.softmax(0), x + 1], how % x.dim())]
    return torch.cat(parts[how % 3 :], how % x.dim())


OPERATIONS = [
    lambda x, y, how: torch.tanh(x),
    lambda x, y, how: F.relu(x - 0.1),
    lambda x, y, how: torch.sigmoid(x),
    lambda x, y, how: x * 0.5 + 1,
    lambda x, y, how: F.gelu(x),
    lambda x, y, how: x + like(x, y),
    lambda x, y, how: x * like(x, y),
    lambda x, y, how: torch.where(like(x, y) > 0, x, -x),
    lambda x, y, how: x.sum(dims_of(x, how), keepdim=how % 3 > 0) * 0.1,
    lambda x, y, how: x.mean(dims_of(x, how), keepdim=how % 2 > 0),
    lambda x, y, how: x.amax(dims_of(x, how), keepdim=True),
    lambda x, y, how: x.var(dims_of(x, how), unbiased=False, keepdim=how % 2 > 0),
    lambda x, y, how: x.softmax(how % x.dim()),
    lambda x, y, how: x / (1 + x.norm(dim=how % x.dim(), keepdim=True)),
    lambda x, y, how: F.layer_norm(x, x.shape[-1:]) if x.shape[-1] > 1 else x,
    lambda x, y, how: x.cumsum(how % x.dim()) * 0.2,
    lambda x, y, how: x.transpose(0, -1),
    lambda x, y, how: x.flatten(how % x.dim()),
    lambda x, y, how: x.unsqueeze(how % (x.dim() + 1)) if x.dim() < 4 else x,
    lambda x, y, how: x.narrow(how % x.dim(), 0, max(1, x.shape[how % x.dim()] - 1)),
    lambda x, y, how: x.flip(how % x.dim()),
    lambda x, y, how: pool(x, how),
    lambda x, y, how: torch.tanh(x @ x.mT) if x.dim() >= 2 else x - 1,
    lambda x, y, how: beside(x, y, how),
    lambda x, y, how: x.roll((how - 3, 2), (how % x.dim(), -1)),
    lambda x, y, how: x.flatten(how % x.dim()).roll(how - 4).unsqueeze(0),
    lambda x, y, how: by_turns(x, how),
]


def by_turns(x, how):
    """Every other slice first, where there are as many of these as of others."""
    dim = how % x.dim()
    if x.shape[dim] % 2:
        return x.roll(1)
    first, second = (x.movedim(dim, 0)[at::2].movedim(0, dim) for at in (0, 1))
    return torch.cat([first, second], (dim + how // 2) % x.dim())


class Part(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        # No total of these is zero: which side of it rounding falls on nobody has to agree on.
        self.weight = nn.Parameter(torch.linspace(-1, 1.2, 4))

    def forward(self, x, y):
        values = [x, y, self.weight]
        for which, first, second, how in self.steps:
            one, two = (values[-1 - n % len(values)] for n in (first, second))
            value = OPERATIONS[which % len(OPERATIONS)](one, two, how)
            values.append(value + self.weight if value.dim() == 0 else value)
        return values[-1], values[3 + self.steps[0][3] % len(self.steps)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Part(steps) for steps in PROGRAMS)

    def forward(self, x, y):
        return [part(x, y) for part in self.parts]


def get_inputs():
    return [torch.rand(2, 3, 5) - 0.3, torch.rand(3, 5)[:, :1] - 0.3]


def get_init_inputs():
    return []
