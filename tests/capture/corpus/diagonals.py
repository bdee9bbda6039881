"""A diagonal matrix times a matrix, in six spellings."""

import torch
from torch import nn

ROWS = 5
COLUMNS = 7


class Model(nn.Module):
    def forward(self, d: torch.Tensor, b: torch.Tensor):
        full = torch.diag(d)
        return (
            *(full @ b, torch.mm(torch.diag_embed(d), b), b.T @ full, d.unsqueeze(1) * b),
            *(torch.einsum("i,ij->ij", d, b), torch.einsum("ij,jk->ik", full, b)),
            *(torch.diag(b @ b.T), torch.diagonal(full), torch.einsum("ii->i", full)),
        )


def get_inputs():
    return [torch.randn(ROWS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
