"""GPT-2 with six layers and the scores of all words: four texts of 1,024 words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE = torch.float32
WIDTH, HEADS, LAYERS, WORDS, LENGTH = 768, 12, 6, 50257, 1024


class Layer(nn.Module):
    """Attention and two products, each of a norm, added to what goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.result = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            it.view(batch, length, HEADS, -1).transpose(1, 2)
            for it in self.all(self.norms[0](x)).split(WIDTH, dim=2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.result(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.to(DTYPE)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


def get_inputs() -> list[Tensor]:
    return [torch.randint(0, WORDS, (4, LENGTH))]


def get_init_inputs() -> list[object]:
    return []
