"""A model like Llama with four layers and the scores of all words: four texts of 1,024 words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE = torch.float32
WIDTH, HEADS, GROUPS, WIDE, LAYERS, WORDS, LENGTH = 1024, 16, 4, 2816, 4, 32000, 1024
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

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        normed = self.norms[0](x)
        q, k, v = (
            made(normed).view(batch, length, -1, DEPTH).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.result(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False)
        rates = 10000.0 ** -torch.arange(0, 1, 2 / DEPTH)
        angles = torch.outer(torch.arange(float(LENGTH)), rates).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.to(DTYPE)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        length = tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cosine[:length], self.sine[:length])
        return self.scores(self.norm(x))


def get_inputs() -> list[Tensor]:
    return [torch.randint(0, WORDS, (4, LENGTH))]


def get_init_inputs() -> list[object]:
    return []
