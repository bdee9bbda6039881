"""Child of test_convolutions.py: a module of convolutions, from the graph to the emulator.

Prints one JSON object: errors against float64 over the sum of absolute terms, by the sizes and the
result; findings of the emulator.
"""

import json
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.codegen import emit_module
from kernelwright.emulator import Session
from kernelwright.ir.conv_configs import ConvConfig, DirectConfig, Rounding
from kernelwright.ir.kinds import Conv, TileMoments
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule, tile_moments
from kernelwright.schedule.conv_or_library import Convolutions


class Layers(nn.Module):
    """Convolutions of every form, each with something after it."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv2d(16, 24, 3, padding="same")
        self.up = nn.ConvTranspose2d(16, 9, 3, stride=2, padding=1, output_padding=1)
        self.deep = nn.Conv3d(8, 12, (2, 3, 2), stride=(1, 2, 1), groups=2, bias=False)
        self.line = nn.Conv1d(5, 40, 3, dilation=3)
        self.short = nn.Conv2d(16, 24, (2, 3), dtype=torch.float16)
        self.few = nn.Conv3d(3, 26, (2, 3, 2), (1, 2, 3), (1, 2, 0), (2, 1, 1))
        self.wide = nn.Conv2d(16, 20, 5, padding=2)
        self.scale = nn.Parameter(torch.rand(40, 1))
        self.pooled = nn.Conv2d(16, 24, 3)
        self.least = nn.ConvTranspose2d(16, 70, 3, stride=2, padding=1)
        self.whole = nn.Conv2d(16, 9, 3, padding=1)
        self.shares = nn.ConvTranspose2d(16, 17, 4, stride=2, padding=1, output_padding=1)
        self.totals = nn.Conv3d(8, 5, 3, padding=1)
        self.normed = nn.ConvTranspose2d(16, 10, 3, stride=2, padding=1)
        self.centred = nn.Conv3d(3, 6, (1, 2, 2))
        self.colours = nn.Conv2d(3, 26, 2, stride=2, padding=1)

    def forward(self, x: Tensor, v: Tensor, s: Tensor, h: Tensor, near: Tensor) -> tuple[Any, ...]:
        return (
            near + F.relu(self.plane(x)),
            self.up(x),
            torch.tanh(self.deep(v)) * v[:, :1, :1, :1, :1],
            # By channel, and by place: the operands are broadcast in other ways.
            self.line(s) * self.scale - s[:, :1, 6:],
            F.gelu(torch.tanh(self.few(v[:, 1:4]))),
            F.gelu(torch.tanh(self.wide(x))),
            # Reduced where they are summed: windows, windows and then channels, whole maps.
            # Moments beside the results, and alone: of a norm's mean over maps, too.
            F.max_pool2d(torch.tanh(self.pooled(x)) * self.scale[:24, :, None], 2),
            F.max_pool2d(self.least(x), 2).amin(1),
            F.relu(self.whole(x)).mean((2, 3)),
            F.group_norm(F.relu(self.normed(x)), 2, self.scale[:10, 0]),
            F.group_norm(F.relu(self.colours(x[:, 2:5])), 2, self.scale[:26, 0]),
            F.group_norm(self.centred(v[:, 1:4]), 3, self.scale[:6, 0], self.scale[6:12, 0]).mean(
                (2, 3, 4)
            ),
            # Programs over channels, of each and of all, with rows of -inf.
            torch.log_softmax(above(self.shares(x)), 1) * self.scale[:17, :, None],
            torch.tanh(torch.logsumexp(above(self.totals(v)), 1)) - self.scale[0],
            F.relu(self.short(h)),
        )


def above(y: Tensor) -> Tensor:
    """What is above 0.1; -inf for the rest."""
    return torch.where(y > 0.1, y, -torch.inf)


def inputs(n: int, side: int) -> tuple[Tensor, ...]:
    return (
        torch.rand(n, 16, side, side + 3) - 0.3,
        torch.rand(n, 8, 4, side, 5) - 0.3,
        torch.rand(n, 5, 8 * side) - 0.3,
        (torch.rand(n, 16, side, 9) - 0.3).half(),
        torch.rand(n, 24, side, side + 3),
    )


def planned(module: nn.Module, given: tuple[Tensor, ...]) -> Any:
    """The emitted forward; the first convolution rounds at these sizes."""
    graph = rewrite(capture_module(module, given)).graph
    ours = {node.name: Rounding.NONE for node in graph.nodes if isinstance(node.kind, Conv)}
    first, *_, half = ours
    ours |= {first: Rounding.MEASURED_SIZES, half: Rounding.SHORT}
    chosen = Convolutions(left={}, ours=ours)
    # Where memory is slow, whatever can be reduced in a convolution's kernel is. Neighbouring
    # outputs are joined in three.
    assert H200.convolutions is not None
    rates = replace(H200.convolutions, turning_bandwidth=1e6, joined_outputs=0.6)
    slow = replace(H200, convolutions=rates)
    # As if no kernel for rows held what it normalises.
    tile_moments.is_held = lambda one, how, machine: False
    plan = schedule(graph, slow, Library.NEVER, convolutions=chosen)
    assert not plan.left_to_pytorch
    assert [kernel.family for kernel in plan.kernels if kernel.family == "conv"] == ["conv"] * 15
    reduced = [it.anchor.conv.reduction for it in plan.kernels if it.family == "conv"]
    windows = [it.window for it in reduced if it is not None and it.over_windows is not None]
    assert windows == [(2, 2), (2, 2)]
    moments = [it.moments for it in reduced if it is not None and it.moments is not None]
    both = TileMoments.ALONE, TileMoments.BESIDE
    assert moments == [*both, *reversed(both)]
    results = [it.keeps_channels for it in reduced if it is not None and it.result is not None]
    assert results == [True, False]
    assert sum(isinstance(kernel.config, DirectConfig) for kernel in plan.kernels) == 4
    configs = [it.config for it in plan.kernels if isinstance(it.config, ConvConfig)]
    assert sum(config.outputs > 1 for config in configs) == 3
    namespace: dict[str, Any] = {}
    exec(emit_module("layers", "self, x, v, s, h, near", plan).source, namespace)
    return namespace["ModelNew"].forward


def error(result: Tensor, exact: Tensor) -> float:
    assert not exact.numel() or exact.isfinite().any()
    same = (result.double() == exact) | (result.isnan() & exact.isnan())
    distance = torch.where(same, 0.0, (result.double() - exact).abs() / (1 + exact.abs()))
    return distance.nan_to_num(torch.inf).max().item() if distance.numel() else 0.0


def errors(forward: Any, module: nn.Module, given: tuple[Tensor, ...]) -> list[float]:
    double = Layers().double()
    double.load_state_dict({name: it.double() for name, it in module.state_dict().items()})
    exact = double(*(it.double() for it in given))
    return [error(*pair) for pair in zip(forward(module, *given), exact, strict=True)]


def main() -> None:
    torch.manual_seed(0)
    module = Layers().eval()
    given = inputs(2, 8)
    special = tuple(it.clone() for it in given)
    special[0].view(-1)[7], special[2].view(-1)[9] = torch.inf, torch.nan
    strided = tuple(torch.stack([it, it], -1).flatten(-2)[..., ::2] for it in given)
    found: dict[str, list[float]] = {}
    with Session(order_seed=1, multiprocessors=4) as session, torch.no_grad():
        forward = planned(module, given)
        found["captured, TF32 forbidden"] = errors(forward, module, given)
        # In a block: one by one the flags are locked where PyTorch's own tests were imported.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
            found["captured"] = errors(forward, module, given)
            # Maps of 13 x 16: a tile's positions follow each other, in whole vectors; what is added
            # to one lies between vectors.
            others = inputs(1, 13)
            found["others"] = errors(forward, module, others)
            between = torch.cat([torch.ones(1), others[4].flatten()])[1:].view(others[4].shape)
            found["between vectors"] = errors(forward, module, (*others[:4], between))
            found["none"] = errors(forward, module, inputs(0, 8))
            found["special"] = errors(forward, module, special)
            found["strided"] = errors(forward, module, strided)
    print(json.dumps({"errors": found, "findings": [str(it) for it in session.findings]}))


if __name__ == "__main__":
    main()
