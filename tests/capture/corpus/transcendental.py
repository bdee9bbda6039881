"""Elementary functions of one operand."""

import torch
from torch import nn

BATCH = 4
FEATURES = 6


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        positive = x.abs() + 0.1
        bounded = torch.tanh(x) * 0.9
        return (
            *(x.exp(), x.exp2(), x.expm1(), positive.log(), positive.log2(), positive.log10()),
            *(positive.log1p(), positive.sqrt(), positive.rsqrt(), positive.reciprocal(), x.sin()),
            *(
                x.cos(),
                x.tan(),
                bounded.asin(),
                bounded.acos(),
                x.atan(),
                x.sinh(),
                x.cosh(),
                x.erf(),
            ),
            *(
                x.sign(),
                x.floor(),
                x.ceil(),
                x.round(),
                x.trunc(),
                x.square(),
                torch.atan2(x, positive),
            ),
        )


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
