"""KernelBench's level 1 convolutions, but for depthwise ones, which have a kernel of their own."""

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, slots=True)
class Case:
    """One convolution without a bias; per dimension, in their order (D, H, W)."""

    name: str
    """Number in the suite."""
    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    output_padding: tuple[int, ...] = (0, 0, 0)
    groups: int = 1
    transposed: bool = False
    arithmetic: Literal["tf32", "float32"] = "tf32"
    """What cuDNN computes in, as its error against float64 shows."""

    @property
    def spatial(self) -> int:
        """Dimensions of the image."""
        return len(self.x) - 2

    @property
    def in_channels(self) -> int:
        """Of a group."""
        return self.x[1] // self.groups

    @property
    def out_channels(self) -> int:
        """Of a group."""
        return self.weight[1] if self.transposed else self.weight[0] // self.groups

    def call(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """PyTorch's result, in the type of its arguments."""
        n = self.spatial
        keywords: dict[str, object] = {
            "stride": self.stride[:n],
            "padding": self.padding[:n],
            "dilation": self.dilation[:n],
            "groups": self.groups,
        }
        if self.transposed:
            keywords["output_padding"] = self.output_padding[:n]
        name = f"conv_transpose{n}d" if self.transposed else f"conv{n}d"
        result: torch.Tensor = getattr(torch.nn.functional, name)(x, weight, **keywords)
        return result

    def output_shape(self) -> tuple[int, ...]:
        """Of the result."""
        x = torch.empty(self.x, device="meta")
        return tuple(self.call(x, torch.empty(self.weight, device="meta")).shape)

    def flops(self) -> float:
        """Two for each product of an input, a tap and an output channel."""
        shape = self.x if self.transposed else self.output_shape()
        positions = torch.Size((shape[0], *shape[2:])).numel()
        taps = torch.Size(self.weight[2:]).numel()
        return 2.0 * positions * taps * self.in_channels * self.out_channels * self.groups


CASES = (
    Case("50", (256, 3, 224, 224), (96, 3, 11, 11), stride=(4, 4), padding=(2, 2)),
    Case("54", (16, 3, 64, 64, 64), (64, 3, 3, 3, 3), arithmetic="float32"),
    Case("55", (8, 64, 512, 1024), (128, 64, 3, 3)),
    Case("56", (8, 64, 512, 256), (128, 64, 5, 7)),
    Case("57", (8, 64, 1024, 1024), (64, 64, 3, 3), transposed=True),
    Case("58", (16, 32, 16, 32, 64), (32, 16, 3, 5, 7), transposed=True),
    Case("59", (16, 3, 256, 256, 10), (64, 3, 3, 3, 1), arithmetic="float32"),
    Case("60", (16, 3, 64, 64, 64), (64, 3, 3, 5, 7), arithmetic="float32"),
    Case("61", (8, 48, 64, 64, 64), (48, 48, 3, 3, 3), transposed=True),
    Case("62", (8, 32, 512, 512), (64, 32, 5, 9)),
    Case("63", (16, 16, 1024, 1024), (128, 16, 3, 3)),
    Case("64", (64, 128, 65536), (128, 128, 3), transposed=True),
    Case("65", (8, 64, 512, 512), (64, 64, 3, 7), transposed=True),
    Case("66", (8, 3, 16, 128, 128), (64, 3, 3, 5, 7), arithmetic="float32"),
    Case("67", (32, 64, 131072), (128, 64, 3)),
    Case("68", (16, 32, 64, 64, 64), (32, 64, 3, 5, 5), transposed=True),
    Case("69", (64, 64, 128, 256), (64, 128, 3, 5), transposed=True),
    Case("70", (8, 48, 96, 96, 96), (48, 24, 3, 3, 3), transposed=True),
    Case("71", (8, 32, 512, 1024), (32, 32, 3, 3), transposed=True),
    Case(
        "72",
        (8, 32, 12, 24, 48),
        (32, 8, 3, 5, 7),
        stride=(2, 2, 2),
        padding=(1, 2, 3),
        output_padding=(1, 1, 1),
        groups=4,
        transposed=True,
        arithmetic="float32",
    ),
    Case(
        "73",
        (4, 32, 32, 64, 128),
        (32, 32, 3, 3, 3),
        stride=(2, 2, 2),
        padding=(1, 1, 1),
        transposed=True,
    ),
    Case("74", (32, 32, 131072), (32, 64, 5), dilation=(3,), transposed=True),
    Case(
        "75",
        (16, 32, 128, 256),
        (32, 16, 3, 5),
        stride=(2, 3),
        padding=(1, 2),
        dilation=(2, 1),
        groups=4,
        transposed=True,
        arithmetic="float32",
    ),
    Case("76", (64, 64, 524280), (128, 64, 3), stride=(3,), dilation=(4,)),
    Case(
        "77",
        (16, 32, 16, 32, 32),
        (32, 64, 3, 3, 3),
        stride=(2, 2, 2),
        padding=(1, 1, 1),
        dilation=(2, 2, 2),
        transposed=True,
    ),
    Case("78", (8, 32, 512, 1024), (32, 32, 3, 7), padding=(1, 3), transposed=True),
    Case(
        "79",
        (16, 32, 131072),
        (32, 64, 3),
        stride=(2,),
        padding=(1,),
        dilation=(2,),
        transposed=True,
    ),
    Case("80", (8, 32, 512, 512), (64, 32, 5, 9), padding=(2, 4), dilation=(2, 3)),
    Case(
        "81",
        (16, 32, 64, 128),
        (32, 64, 3, 3),
        stride=(5, 5),
        padding=(1, 1),
        dilation=(2, 2),
        transposed=True,
    ),
    Case("87", (16, 64, 1024, 1024), (128, 64, 1, 1)),
)
