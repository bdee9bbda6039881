"""Maximum, average and adaptive pooling over one to three dimensions."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 3
CHANNELS = 4
HEIGHT = 9
WIDTH = 8


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        line, box = x[:, :, 0], x[:, None]
        return (
            *(
                F.max_pool2d(x, 2),
                F.avg_pool2d(x, 3, stride=2, padding=1),
                F.adaptive_avg_pool2d(x, 1),
            ),
            *(F.max_pool1d(line, 3), F.avg_pool1d(line, 2), F.adaptive_avg_pool1d(line, 2)),
            *(F.max_pool3d(box, 2), F.avg_pool3d(box, 2), F.adaptive_avg_pool3d(box, 1)),
            F.max_pool2d(x, 2, return_indices=True)[1],
        )


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
