"""One parameter under two names, and a parameter that forward never uses."""

import torch
from torch import nn

BATCH = 4
WORDS = 9
WIDTH = 6


class Model(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, token: torch.Tensor):
        return self.head(self.embedding(token))


def get_inputs():
    return [torch.arange(BATCH) % WORDS]


def get_init_inputs():
    return [WORDS, WIDTH]
