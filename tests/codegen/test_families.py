"""What the compiler writes for a small module of every family of kernels, as text."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.codegen import emit_module
from kernelwright.machine import A100, H200, Machine
from kernelwright.schedule import Library, plan_graph, print_plan


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x * 2, 1), x.sum((0, 1))


class Scan(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2).cumsum(1), x.cumprod(0) + 1


class Pooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(F.max_pool2d(x, 2)), F.relu(self.filters(x))


class Concatenation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.tanh(x), F.avg_pool2d(x, 3, 1, 1), x * 2], 1)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x))) * 2


class DepthwiseLast(ChannelsLast):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(32, 32, 5, padding=2, groups=32)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.silu(self.depthwise(F.relu(self.first(x))))) * 2


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 64, 3, padding=1)
        self.second = nn.ConvTranspose2d(64, 64, 2, stride=2, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)) + x)


class Products(nn.Module):
    def forward(self, a: Tensor, b: Tensor, thin: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(a @ b.T), thin @ b + 1


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 24, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        y, (_, cells) = self.lstm(x, (h, c))
        return y, cells


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k, attn_mask=mask)


class Gathered(nn.Module):
    def forward(self, table: Tensor, numbers: Tensor) -> Tensor:
        return table[(numbers > 0).long()]


class Joint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(1024, eps=1e-6)
        self.query, self.gate, self.up = (nn.Linear(1024, 512, bias=False) for _ in range(3))
        self.bfloat16()

    def forward(self, x: Tensor, cosine: Tensor) -> tuple[Tensor, Tensor]:
        q = self.query(self.norm(x.bfloat16())).view(4, 8, 64)
        first, second = q.chunk(2, -1)
        turned = q * cosine.bfloat16() + torch.cat([-second, first], -1)
        x = self.norm(x.bfloat16() * 2)
        return turned, F.silu(self.gate(x)) * self.up(x)


class Case(NamedTuple):
    """A module and its arguments' sizes."""

    module: nn.Module
    sizes: tuple[tuple[int, ...], ...]
    library: Library = Library.NEVER
    machine: Machine = H200


CASES = {
    "rows": Case(Softmax(), ((512, 4096),)),
    "scan": Case(Scan(), ((64, 4096),)),
    "pooling": Case(Pooling(), ((16, 8, 64, 64),)),
    "concatenation": Case(Concatenation(), ((16, 8, 64, 64),)),
    "channels_last": Case(ChannelsLast(), ((32, 16, 56, 56),), Library.WHERE_FASTER, A100),
    "depthwise_last": Case(DepthwiseLast(), ((32, 16, 56, 56),), Library.WHERE_FASTER, A100),
    "convolution": Case(Convolution(), ((32, 64, 56, 56),)),
    "attention": Case(Attention(), ((8, 16, 300, 80), (8, 16, 512, 80), (300, 512))),
    "recurrent": Case(Recurrent(), ((5, 20, 8), (4, 5, 24), (4, 5, 24))),
    "gather": Case(Gathered(), ((64, 300), (16, 128))),
    "joint": Case(Joint(), ((4, 1024), (64,))),
    "products": Case(Products(), ((2048, 1024), (1024, 1024), (4, 1024))),
}


@pytest.mark.parametrize("name", CASES)
def test_emitted(name: str, golden: Callable[[str, str], None]) -> None:
    case = CASES[name]
    graph = capture_module(case.module, tuple(map(torch.empty, case.sizes)))
    planned = plan_graph(graph, case.machine, case.library)
    candidate = emit_module(name, "self, *args", planned.plan)
    cuda, source = candidate.cuda_source, candidate.source
    kernels = cuda[cuda.index(f"// ---- {planned.plan.kernels[0].name} ----") :]
    module = source[source.index("class ModelNew") : source.index("# ---- This problem's kernels")]
    golden(f"{print_plan(planned.plan)}\n{kernels}\n{module.rstrip()}\n", f"{name}.txt")
