"""Embedding, indexing, gather, top-k, sort, one-hot."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
LENGTH = 5
WORDS = 11
WIDTH = 6


class Model(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)

    def forward(self, token: torch.Tensor):
        x = self.embedding(token)
        values, places = torch.topk(x, 3, dim=-1)
        return (
            x,
            values,
            torch.gather(x, 2, places),
            x[:, [0, 2]],
            x.sort(dim=1)[0],
            F.one_hot(token, 11),
        )


def get_inputs():
    return [torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) % WORDS]


def get_init_inputs():
    return [WORDS, WIDTH]
