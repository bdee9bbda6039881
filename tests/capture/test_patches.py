"""Convolutions of patches side by side: products of rows where an image's channels are few."""

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Contract, Conv
from kernelwright.ir.plan import Launch, TorchCall
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph


class Patches(nn.Module):
    """Patches of an image of this size, and what reads them."""

    def __init__(self, layer: nn.Module, size: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.size = layer, size

    def forward(self, x: Tensor) -> Tensor:
        for dim, side in enumerate(self.size):
            torch._assert(x.shape[2 + dim] == side, "another size")
        return self.layer(x).flatten(2).transpose(1, 2)


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(3, 5, 4, 4), (8, 12)),
        (nn.Conv2d(1, 5, (2, 3), (2, 3), bias=False), (8, 12)),
        (nn.Conv3d(4, 6, (1, 2, 4), (1, 2, 4)), (3, 4, 8)),
    ],
)
@torch.no_grad()
def test_patches_are_rows(layer: nn.Module, size: tuple[int, ...]) -> None:
    x = torch.rand(2, layer.weight.shape[1], *size)
    module = Patches(layer, size)
    graph = capture_module(module, (x,))
    (product,) = (node for node in graph.nodes if isinstance(node.kind, Contract))
    assert product.part_of is not None and isinstance(product.part_of.kind, Conv)
    torch.testing.assert_close(run_graph(graph, module, (x,), {}), module(x))


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(3, 5, 4, 4), (9, 12)),  # a place that no patch has
        (nn.Conv2d(3, 5, 4, 2), (8, 12)),
        (nn.Conv2d(3, 5, 4, 4, padding=2), (8, 12)),
        (nn.Conv2d(4, 8, 2, 2, groups=2), (8, 12)),
        (nn.Conv2d(5, 8, 2, 2), (8, 12)),  # kernels of convolutions take as many channels
        (nn.ConvTranspose2d(3, 5, 4, 4), (8, 12)),
    ],
)
@torch.no_grad()
def test_others_are_convolutions(layer: nn.Module, size: tuple[int, ...]) -> None:
    x = torch.rand(2, layer.in_channels, *size)
    nodes = capture_module(Patches(layer, size), (x,)).nodes
    assert any(isinstance(node.kind, Conv) for node in nodes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_image_s_patches_are_a_kernel_s(dtype: torch.dtype) -> None:
    """The copy that puts them side by side is one, too."""
    module = Patches(nn.Conv2d(3, 256, 16, 16), (224, 224)).to(dtype)
    plan = plan_graph(capture_module(module, (torch.rand(32, 3, 224, 224, dtype=dtype),)), H200)
    steps = plan.plan.steps
    assert not any(isinstance(step, TorchCall) for step in steps)
    launches = [step.kernel.operators for step in steps if isinstance(step, Launch)]
    assert launches == [("contiguous",), ("conv2d",)]


@pytest.mark.parametrize("layer", [nn.Conv2d(6, 4, 1), nn.ConvTranspose2d(6, 4, 1, bias=False)])
@torch.no_grad()
def test_images_of_one_place_are_rows(layer: nn.Module) -> None:
    """As after a mean over all places: one product for the batch, not a small one for each."""
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), layer)
    x = torch.rand(3, 6, 5, 7)
    graph = capture_module(module, (x,))
    (product,) = (node.kind for node in graph.nodes if isinstance(node.kind, Contract))
    assert product.out == "bo"
    torch.testing.assert_close(run_graph(graph, module, (x,), {}), module(x))
