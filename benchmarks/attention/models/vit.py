"""ViT-B/16: classes of 32 pictures of 224 x 224."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE = torch.float32
WIDTH, HEADS, LAYERS, PATCH, SIDE, CLASSES = 768, 12, 12, 16, 224, 1000


class Layer(nn.Module):
    """Attention and two products, each of a norm, added to what goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.result = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            self.all(self.norms[0](x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        )
        seen = F.scaled_dot_product_attention(q, k, v)
        x = x + self.result(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2 + 1, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.scores = nn.Linear(WIDTH, CLASSES)
        self.to(DTYPE)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.scores(self.norm(x)[:, 0])


def get_inputs() -> list[Tensor]:
    return [torch.rand(32, 3, SIDE, SIDE).to(DTYPE)]


def get_init_inputs() -> list[object]:
    return []
