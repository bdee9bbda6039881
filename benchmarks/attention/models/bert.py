"""BERT-base with six layers: eight texts of 512 words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE = torch.float32
WIDTH, HEADS, LAYERS, WORDS, LENGTH = 768, 12, 6, 30522, 512


class Layer(nn.Module):
    """Attention and two products, each added to its input before a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.result = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            made(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = self.norms[0](x + self.result(seen))
        return self.norms[1](x + self.narrow(F.gelu(self.wide(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.to(DTYPE)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]] + self.kinds.weight[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return x


def get_inputs() -> list[Tensor]:
    return [torch.randint(0, WORDS, (8, LENGTH))]


def get_init_inputs() -> list[object]:
    return []
