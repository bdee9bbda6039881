"""Modules of torch.nn."""

import torch
from torch import nn

X = torch.rand(2, 8, 12, 12)
ROWS = torch.rand(2, 6, 16)
TOKENS = torch.arange(12).reshape(2, 6)
PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
LABELS = torch.tensor([1, 3])


def _encoder(**options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 1, **options).eval()


def _transformer():
    return nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()


MODULES = {
    "Linear": lambda: (nn.Linear(16, 8), (ROWS,), {}),
    "Bilinear": lambda: (nn.Bilinear(16, 16, 4), (ROWS, ROWS), {}),
    "Conv1d": lambda: (nn.Conv1d(6, 4, 3), (ROWS,), {}),
    "Conv2d": lambda: (nn.Conv2d(8, 4, 3, padding="same"), (X,), {}),
    "ConvTranspose2d": lambda: (nn.ConvTranspose2d(8, 4, 3, stride=2), (X,), {}),
    "depthwise": lambda: (nn.Conv2d(8, 8, 3, groups=8), (X,), {}),
    "LSTM": lambda: (nn.LSTM(16, 8, batch_first=True), (ROWS,), {}),
    "GRU": lambda: (nn.GRU(16, 8, bidirectional=True), (ROWS,), {}),
    "LSTMCell": lambda: (nn.LSTMCell(16, 8), (ROWS[0],), {}),
    "GRUCell": lambda: (nn.GRUCell(16, 8), (ROWS[0],), {}),
    "MultiheadAttention": lambda: (
        nn.MultiheadAttention(16, 2, batch_first=True).eval(),
        (ROWS, ROWS, ROWS),
        {"key_padding_mask": PADDING},
    ),
    "TransformerEncoder": lambda: (_encoder(), (ROWS,), {}),
    "TransformerEncoder, padding": lambda: (
        *(_encoder(), (ROWS,)),
        {"src_key_padding_mask": PADDING},
    ),
    "TransformerEncoder, padding, not nested": lambda: (
        *(_encoder(enable_nested_tensor=False), (ROWS,)),
        {"src_key_padding_mask": PADDING},
    ),
    "TransformerDecoderLayer": lambda: (
        *(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).eval(), (ROWS, ROWS), {}),
    ),
    "Transformer": lambda: (_transformer(), (ROWS, ROWS), {}),
    "Embedding": lambda: (nn.Embedding(50, 16, padding_idx=0), (TOKENS,), {}),
    "EmbeddingBag": lambda: (nn.EmbeddingBag(50, 16, mode="sum"), (TOKENS,), {}),
    "BatchNorm2d, training": lambda: (nn.BatchNorm2d(8), (X,), {}),
    "GroupNorm": lambda: (nn.GroupNorm(4, 8), (X,), {}),
    "LayerNorm": lambda: (nn.LayerNorm(16), (ROWS,), {}),
    "RMSNorm": lambda: (nn.RMSNorm(16), (ROWS,), {}),
    "InstanceNorm2d": lambda: (nn.InstanceNorm2d(8, affine=True), (X,), {}),
    "LocalResponseNorm": lambda: (nn.LocalResponseNorm(3), (X,), {}),
    "MaxPool2d, indices": lambda: (nn.MaxPool2d(2, return_indices=True), (X,), {}),
    "AdaptiveAvgPool2d": lambda: (nn.AdaptiveAvgPool2d(3), (X,), {}),
    "FractionalMaxPool2d": lambda: (nn.FractionalMaxPool2d(3, 5), (X,), {}),
    "Upsample": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (X,), {}),
    "Unfold": lambda: (nn.Unfold(3), (X,), {}),
    "PixelShuffle": lambda: (nn.PixelShuffle(2), (X,), {}),
    "CrossEntropyLoss": lambda: (
        *(nn.CrossEntropyLoss(label_smoothing=0.1), (torch.rand(2, 5), LABELS), {}),
    ),
    "CTCLoss": lambda: (
        *(nn.CTCLoss(), (torch.rand(9, 2, 5).log_softmax(2), LABELS.reshape(2, 1) % 5)),
        {"input_lengths": torch.tensor([9, 9]), "target_lengths": torch.tensor([1, 1])},
    ),
    "AdaptiveLogSoftmaxWithLoss": lambda: (
        *(nn.AdaptiveLogSoftmaxWithLoss(16, 10, [4]), (ROWS[0][:2], LABELS), {}),
    ),
    "weight_norm": lambda: (
        *(nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), (ROWS,), {}),
    ),
}
