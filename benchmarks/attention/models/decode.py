"""One new word of each text by a model like Llama: a decode step, with 4,095 words before it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE = torch.float32
BATCH = 1
WIDTH, HEADS, GROUPS, WIDE, LAYERS, WORDS, LENGTH = 1024, 16, 4, 2816, 4, 32000, 4096
DEPTH = WIDTH // HEADS


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The halves of each head turned by the angles of its place."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class Layer(nn.Module):
    """RMS norm, rotary embedding, grouped heads, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.result = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, GROUPS * DEPTH, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, WIDE, bias=False) for _ in range(2))
        self.down = nn.Linear(WIDE, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, cosine: Tensor, sine: Tensor):
        batch = x.shape[0]
        normed = self.norms[0](x)
        q, k, v = (
            made(normed).view(batch, 1, -1, DEPTH).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        keys[:, :, -1:] = rotated(k, cosine, sine)
        values[:, :, -1:] = v
        seen = F.scaled_dot_product_attention(
            rotated(q, cosine, sine), keys, values, enable_gqa=True
        )
        x = x + self.result(seen.transpose(1, 2).reshape(batch, 1, WIDTH))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False)
        angles = (LENGTH - 1) * 10000.0 ** -torch.arange(0, 1, 2 / DEPTH).repeat(2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.to(DTYPE)

    def forward(self, tokens: Tensor, *caches: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer, keys, values in zip(self.layers, caches[:LAYERS], caches[LAYERS:], strict=True):
            x = layer(x, keys, values, self.cosine, self.sine)
        return self.scores(self.norm(x))


def get_inputs() -> list[Tensor]:
    cache = [torch.randn(BATCH, GROUPS, LENGTH, DEPTH).to(DTYPE) for _ in range(2 * LAYERS)]
    return [torch.randint(0, WORDS, (BATCH, 1)), *cache]


def get_init_inputs() -> list[object]:
    return []
