"""Child of test_places.py: convolutions by place, from the graph to the emulator.

Prints one JSON object: by sizes, the error of each result against float64 over that of PyTorch's
own forward; findings of the emulator. In float32 it is that of a forward whose convolutions take
TF32 where the captured sizes are allowed it.
"""

import json
import math
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.codegen import emit_module
from kernelwright.emulator import Session
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.kinds import Contract
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph
from kernelwright.schedule.planning import OPEN


class Layers(nn.Module):
    """Convolutions of every form that a product of patches takes, each with something after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 24, 3, padding=1)
        self.norm = nn.BatchNorm2d(24)
        self.strided = nn.Conv2d(24, 80, 3, stride=(2, 3), padding=1, bias=False)
        self.beside = nn.Conv2d(24, 80, 1, stride=(2, 3), bias=False)
        self.wide = nn.Conv2d(80, 136, 3, padding=4, dilation=(4, 3))
        self.narrow = nn.Conv2d(136, 8, 1, bias=False)
        self.last = nn.Conv2d(8, 16, (1, 5), padding=(2, 2))
        self.several = nn.Conv2d(136, 40, 1)

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        x = F.relu(self.norm(self.first(x)))
        # A residual that has a convolution of its own; a value for each channel of an image.
        x = F.relu(self.strided(x) + self.beside(x))
        y = F.silu(self.wide(x)) * scale[:, :, None, None]
        z = self.narrow(F.max_pool2d(y, 3, 2, 1))
        return self.last(z), y, z.mean((2, 3)), self.several(y)


assert H200.warpgroups is not None
CUTS = sys.argv[2] == "cut"
CUTTING = replace(H200, warpgroups=replace(H200.warpgroups, slice_k=64))
"""A card that cuts small products, too."""
DTYPE = getattr(torch, sys.argv[1])
ROUNDS = torch.float32 == DTYPE
UNIT = torch.finfo(DTYPE).eps / (1 if ROUNDS else 4)
"""Of the root mean square: errors that say nothing."""


def inputs(n: int, high: int, wide: int) -> tuple[Tensor, ...]:
    return (torch.rand(n, 8, high, wide).to(DTYPE), torch.rand(n, 136).to(DTYPE))


def to_tf32(numbers: Tensor) -> Tensor:
    """The nearest numbers of eleven bits, halves to even ones; NaN stays what it is."""
    bits = numbers.view(torch.int32)
    rounded = ((bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13).view(torch.float32)
    return numbers.where(numbers.isnan(), rounded)


def usual(module: nn.Module, given: tuple[Tensor, ...], rounds: bool) -> tuple[Tensor, ...]:
    """PyTorch's own forward."""
    if not rounds:
        return module(*given)
    own = F.conv2d

    def convolve(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
        return own(to_tf32(x), to_tf32(weight), *others)

    with patch.object(F, "conv2d", convolve):
        return module(*given)


def planned(module: nn.Module, given: tuple[Tensor, ...]) -> Any:
    """The emitted forward, with all convolutions as products."""
    chosen = replace(OPEN, by_place=True)
    # Maps as small as these are float32 to cuDNN.
    measured = Rounding.MEASURED_SIZES if ROUNDS else Rounding.SHORT
    found = "kernelwright.schedule.conv_or_library.rounding_of"
    known = "kernelwright.schedule.conv_or_library.tf32_elements"
    with (
        patch(found, lambda sizes, machine: measured),
        patch(known, lambda sizes, machine: 2 * math.prod(given[0].shape)),
    ):
        plan = plan_graph(
            capture_module(module, given), CUTTING if CUTS else H200, choices=chosen
        ).plan
    assert not plan.left_to_pytorch
    configs = [it.config for it in plan.kernels if isinstance(it.config, TensorCoreConfig)]
    anchors = [it.anchor for it in plan.kernels if isinstance(it.anchor, Contract)]
    assert sum(not it.patches.are_pixels for it in anchors) == 5 and len(anchors) == 7
    (copies,) = (it for it in plan.kernels if it.family == "copies")
    assert len(copies.outputs) == 4, copies.outputs
    if CUTS:
        cut = [it.block_n for it in configs if it.slices > 1]
        assert cut and len(cut) < len(configs) and (not ROUNDS or 16 in cut), configs
    elif ROUNDS:
        # Taps that share pixels, dilated and of rows that lie apart; tiles of few columns.
        (band,) = (it for it in configs if it.feed is Feed.BAND)
        assert band.taps == 9 and {(it.block_n, it.resident) for it in configs} >= {
            (16, 1),
            (16, 2),
        }
    namespace: dict[str, Any] = {}
    exec(emit_module("layers", "self, x, scale", plan).source, namespace)
    return namespace["ModelNew"].forward


def errors(
    forward: Any, module: nn.Module, given: tuple[Tensor, ...], *, rounds: bool
) -> list[float]:
    """Root mean squares against float64, as parts of PyTorch's own."""
    double = Layers().eval().double()
    double.load_state_dict(module.state_dict())
    exact = double(*(it.double() for it in given))
    found = []
    own = usual(module, given, rounds)
    for ours, theirs, true in zip(forward(module, *given), own, exact, strict=True):
        assert ours.shape == true.shape and ours.dtype == theirs.dtype
        assert torch.equal(ours.isfinite(), true.isfinite())
        # In bfloat16, on processors with tiles of their own, PyTorch spreads what is not finite.
        fine = true.isfinite() & theirs.isfinite()
        ours, theirs, true = (it.double()[fine] for it in (ours, theirs, true))
        error, least = ((it - true).square().mean().sqrt() for it in (ours, theirs))
        # PyTorch's own may be right to the last bit by chance, where there are few elements.
        least = least.clamp(min=UNIT * true.square().mean().sqrt())
        found.append((error / least).item() if true.numel() else 0.0)
    return found


def main() -> None:
    torch.manual_seed(0)
    module = Layers().eval().to(DTYPE)
    module.norm.running_var.uniform_(0.5, 2)
    given = inputs(3, 13, 19)
    special = (given[0].clone(), given[1])
    special[0][1, 2, 3, 4], special[0][2, 7, 0, 0] = torch.inf, torch.nan
    # Channels last already; elements that are no neighbours; one past an aligned address.
    last = given[0].to(memory_format=torch.channels_last)
    apart = torch.stack([given[0], given[0]], -1).flatten(-2)[..., ::2]
    between = torch.cat([given[0].new_zeros(1), given[0].flatten()])[1:].view(given[0].shape)
    found: dict[str, list[float]] = {}
    allowed = torch.backends.cudnn.flags(enabled=True, allow_tf32=True)
    with Session(order_seed=1, multiprocessors=4) as session, allowed, torch.no_grad():
        forward = planned(module, given)
        for name, values in {
            "captured": given,
            "others": inputs(1, 5, 7),
            "more": inputs(7, 13, 19),
            "one place": inputs(2, 1, 3),
            "none": inputs(0, 13, 19),
            "special": special,
            "channels last": (last, given[1]),
            "apart": (apart, given[1]),
            "between vectors": (between, given[1]),
        }.items():
            rounds = ROUNDS and values[0].numel() >= given[0].numel()
            found[name] = errors(forward, module, values, rounds=rounds)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            found["no TF32"] = errors(forward, module, given, rounds=False)
        # Filters that lie as the products want them, and others that lie in no order of these.
        module.to(memory_format=torch.channels_last)
        weight = module.wide.weight
        module.wide.weight = nn.Parameter(
            weight.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
        )
        found["other filters"] = errors(forward, module, given, rounds=ROUNDS)
    print(json.dumps({"errors": found, "findings": [str(it) for it in session.findings]}))


if __name__ == "__main__":
    main()
