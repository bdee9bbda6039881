"""Networks as people write them by hand, at sizes at which they train and serve them."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A block of a language model: RMS norm, rotary embedding, grouped heads, SwiGLU."""

    def __init__(self, width: int = 1024, heads: int = 16, groups: int = 4) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.queries = nn.Linear(width, width, bias=False)
        self.others = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.result = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        rates = 10000.0 ** -torch.arange(0, 1, 2 / self.size)
        angles = torch.outer(torch.arange(4096.0), rates)
        self.register_buffer("cosine", angles.cos().repeat(1, 2))
        self.register_buffer("sine", angles.sin().repeat(1, 2))

    def _rotated(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        length = x.shape[-2]
        return x * self.cosine[:length] + turned * self.sine[:length]

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        normed = self.norms[0](x)
        q = self.queries(normed).view(batch, length, self.heads, self.size).transpose(1, 2)
        both = self.others(normed).view(batch, length, 2, self.groups, self.size)
        k, v = both.permute(2, 0, 3, 1, 4)
        q, k = self._rotated(q), self._rotated(k)
        k, v = (it.repeat_interleave(self.heads // self.groups, dim=1) for it in (k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.result(seen.transpose(1, 2).reshape(batch, length, width))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class UNet(nn.Module):
    """Four steps down and up, each level joined with what was on the way down."""

    def __init__(self, channels: int = 32, levels: int = 4) -> None:
        super().__init__()
        widths = [channels * 2**level for level in range(levels + 1)]
        before = [3, *widths]
        self.ins = nn.ModuleList(map(self._block, before, widths))
        pairs = list(pairwise(widths))[::-1]
        self.ups = nn.ModuleList(nn.ConvTranspose2d(wide, thin, 2, 2) for thin, wide in pairs)
        self.outs = nn.ModuleList(self._block(wide, thin) for thin, wide in pairs)
        self.last = nn.Conv2d(channels, 2, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.ins):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for up, block in zip(self.ups, self.outs, strict=True):
            x = block(torch.cat([up(x), kept.pop()], dim=1))
        return self.last(x)


class PointNet(nn.Module):
    """Classes of sets of points: layers on each point, and the largest of all points."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.turn = nn.Sequential(self._each(3, 64), self._each(64, 256))
        self.turned = nn.Linear(256, 9)
        self.each = nn.Sequential(self._each(3, 64), self._each(64, 128), self._each(128, 1024))
        self.head = nn.Sequential(
            *(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.3)),
            nn.Linear(512, classes),
        )

    @staticmethod
    def _each(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU())

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turned(self.turn(points.transpose(1, 2)).amax(-1)).view(-1, 3, 3)
        turn = turn + torch.eye(3, dtype=points.dtype, device=points.device)
        return self.head(self.each((points @ turn).transpose(1, 2)).amax(-1)).log_softmax(-1)


class Kan(nn.Module):
    """Layers of learned curves on radial bases."""

    def __init__(self, widths: tuple[int, ...] = (256, 256, 256), bases: int = 8) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.register_buffer("centres", torch.linspace(-2, 2, bases))
        self.norms = nn.ModuleList(nn.LayerNorm(before) for before, _ in pairs)
        self.bases = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.curves = nn.ModuleList(
            nn.Linear(before * bases, after, bias=False) for before, after in pairs
        )

    def forward(self, x: Tensor) -> Tensor:
        for norm, base, curves in zip(self.norms, self.bases, self.curves, strict=True):
            near = torch.exp(-(((norm(x)[..., None] - self.centres) * 1.75) ** 2))
            x = base(F.silu(x)) + curves(near.flatten(-2))
        return x


class Tagger(nn.Module):
    """Words, a bidirectional LSTM of two layers, a tag for each word."""

    def __init__(self, words: int = 20000, width: int = 256, tags: int = 20) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.states = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tags(self.states(self.words(tokens))[0]).log_softmax(-1)


class DiffusionBlock(nn.Module):
    """A residual block of a diffusion model with its attention, told the time."""

    def __init__(self, channels: int = 320, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.steps = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 2 * channels))
        self.mixed = nn.Linear(channels, 3 * channels)
        self.result = nn.Linear(channels, channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(160, device=x.device) / 160)
        angles = time[:, None].float() * rates
        told = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        scale, shift = told[:, :, None, None].chunk(2, 1)
        hidden = self.steps[0](F.silu(self.norms[0](x)))
        hidden = self.norms[1](hidden) * (1 + scale) + shift
        x = x + self.steps[1](F.silu(hidden))
        return x + self._attention(self.norms[2](x))

    def _attention(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        rows = x.flatten(2).transpose(1, 2)
        split = self.mixed(rows).view(batch, height * width, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows.shape)
        return self.result(seen).transpose(1, 2).reshape(x.shape)
