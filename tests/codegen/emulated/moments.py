"""Child of test_moments.py: norms in training after products and a depthwise convolution that make
their moments, from the graph to the emulator.

Prints one JSON object: by sizes, how far the result and running statistics are from those of
PyTorch's own forward, whose convolutions take TF32, as parts of these, and what was launched;
findings of the emulator.
"""

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.codegen import candidate, emit_module
from kernelwright.emulator import Session
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.plan import Launch, Plan, Room
from kernelwright.ir.product_configs import TensorCoreConfig
from kernelwright.ir.program import Program
from kernelwright.machine import H200
from kernelwright.program.segments import Frame
from kernelwright.schedule import plan_graph
from kernelwright.schedule.planning import OPEN


class Layers(nn.Module):
    """Of one tap, of nine for each channel by itself, and of nine at every other place."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Conv2d(32, 72, 1, bias=False)
        # What normalises is part of the convolution after it: this one has totals alone.
        self.first = nn.BatchNorm2d(72)
        self.channels = nn.Conv2d(72, 72, 3, padding=1, groups=72, bias=False)
        self.between = nn.BatchNorm2d(72)
        self.places = nn.Conv2d(72, 32, 3, stride=2, padding=1, bias=False)
        self.second = nn.BatchNorm2d(32)
        self.third = nn.Conv2d(32, 16, 1, bias=False)
        # Of what two write side by side.
        self.both = nn.BatchNorm2d(48)
        self.last = nn.Conv2d(48, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(self.pixels(x)))
        y = self.places(F.relu(self.between(self.channels(y))))
        y = torch.cat([y, self.third(F.relu(self.second(y)))], dim=1)
        return self.last(F.relu(self.both(y)))


assert H200.warpgroups is not None
_STEPS = {"cut": 64, "whole": 1 << 20}
MACHINE = replace(H200, warpgroups=replace(H200.warpgroups, slice_k=_STEPS[sys.argv[1]]))
"""A card that cuts small products, too, or none."""
_MOST_GIVEN = "? 256 : 1024;"
_WHOLE = frozenset({"cat_by_place"})


def planned(module: nn.Module, given: Tensor) -> Plan:
    measured = "kernelwright.schedule.conv_or_library"
    with (
        patch(f"{measured}.rounding_of", lambda sizes, machine: Rounding.MEASURED_SIZES),
        patch(f"{measured}.tf32_elements", lambda sizes, machine: 1),
    ):
        graph = capture_module(module, (given,))
        plan = plan_graph(
            graph, MACHINE, choices=replace(OPEN, by_place=True, in_place=_WHOLE)
        ).plan
    having = [it for it in plan.kernels if it.moments]
    configs = [it.config for it in having if isinstance(it.config, TensorCoreConfig)]
    assert Counter(it.family for it in having) == {"gemm": 2, "pooling": 1, "rows": 3}, having
    assert any(isinstance(it, Room) for it in plan.steps)
    assert any(it.slices > 1 for it in configs) == (sys.argv[1] == "cut"), configs
    return plan


def to_tf32(numbers: Tensor) -> Tensor:
    """The nearest numbers of eleven bits, halves to even ones; NaN stays what it is."""
    bits = numbers.view(torch.int32)
    rounded = ((bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13).view(torch.float32)
    return numbers.where(numbers.isnan(), rounded)


def usual(module: nn.Module, x: Tensor, *, rounds: bool) -> Tensor:
    """PyTorch's own forward, its convolutions in TF32."""
    own = F.conv2d

    def convolve(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
        if weight.shape[1] == 1:
            return own(x, weight, *others)
        return own(to_tf32(x), to_tf32(weight), *others)

    with patch.object(F, "conv2d", convolve if rounds else own):
        return module(x)


def called(forward: Callable[[nn.Module], Tensor], module: nn.Module) -> list[Tensor]:
    """The result, and the running statistics afterwards."""
    own = copy.deepcopy(module)
    result = forward(own)
    norms = (own.first, own.between, own.second, own.both)
    return [result, *(it for norm in norms for it in (norm.running_mean, norm.running_var))]


def distances(ours: list[Tensor], others: list[Tensor]) -> list[float]:
    found = []
    for own, other in zip(ours, others, strict=True):
        assert torch.equal(own.isnan(), other.isnan())
        fine = ~other.isnan()
        distance, size = ((it[fine]).norm() for it in (own - other, other))
        found.append((distance / size).item() if fine.any() else 0.0)
    return found


def in_two_calls(plan: Plan) -> Program:
    """The program with its largest native call cut before the last that writes beside others."""
    frame = Frame(plan)
    pieces = frame.pieces()
    largest = max(pieces, key=lambda it: len(it.steps))
    rooms = {step.result for step in largest.steps if isinstance(step, Room)}
    writers = [
        at
        for at, step in enumerate(largest.steps)
        if isinstance(step, Launch) and not rooms.isdisjoint(step.results)
    ]
    at = pieces.index(largest)
    return frame.program([*pieces[:at], *frame.cut(largest, writers[-1]), *pieces[at + 1 :]])


def main() -> None:
    torch.manual_seed(0)
    module, given = Layers(), torch.rand(10, 32, 7, 7) + 2
    special = given.clone()
    special[1, 2, 3, 4] = torch.nan
    found: dict[str, list[float]] = {}
    launched: dict[str, dict[str, int]] = {}
    namespace: dict[str, Any] = {}
    with Session(order_seed=1, multiprocessors=8) as session, torch.no_grad():
        plan = planned(module, given)
        with patch.object(candidate, "program_of", in_two_calls):
            cut: dict[str, Any] = {}
            exec(emit_module("layers", "self, x", plan).source, cut)
        source = emit_module("layers", "self, x", plan).source
        # Fewer parts than usual are more than are read.
        assert source.count(_MOST_GIVEN) == 1
        exec(source.replace(_MOST_GIVEN, "? 28 : 40;"), namespace)
        forward = namespace["ModelNew"].forward
        for name, x, allowed in (
            ("captured", given, True),
            ("no TF32", given, False),
            ("others", torch.rand(3, 32, 5, 5) + 2, True),
            ("one part", torch.rand(1, 32, 3, 3), True),
            ("more parts than are read", torch.rand(120, 32, 7, 7) + 2, True),
            ("special", special, True),
        ):
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
                session.take_launches()
                ours = called(partial(forward, x=x), module)
                launched[name] = session.take_launches()
                rounds = allowed and x.numel() >= given.numel()
                found[name] = distances(ours, called(partial(usual, x=x, rounds=rounds), module))
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
            ours = called(partial(cut["ModelNew"].forward, x=given), module)
            usually = called(partial(usual, x=given, rounds=True), module)
            found["in two calls"] = distances(ours, usually)
    findings = [str(it) for it in session.findings]
    print(json.dumps({"distances": found, "findings": findings, "launched": launched}))


if __name__ == "__main__":
    main()
