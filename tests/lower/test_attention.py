"""Attention written by hand becomes one node, and what only looks like it does not."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.interpreter import run_graph
from kernelwright.lower import lower
from kernelwright.machine import A100, H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule


class Applied(nn.Module):
    """A function of q, k, v and a mask."""

    def __init__(self, function: Callable[..., Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.function(q, k, v, mask)


def _filled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    return torch.softmax(scores.masked_fill(mask == 0, -math.inf), -1) @ v


def _weighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    shares = torch.softmax(q @ k.mT, -1)
    return shares, shares @ v


@pytest.mark.parametrize(
    ("function", "masking"),
    [
        (_filled, Masking.KEEP),
        (lambda q, k, v, m: torch.softmax(m + q @ k.mT / 8, -1) @ v, Masking.ADD),
        (lambda q, k, v, m: torch.softmax((q * 0.3) @ k.mT, dim=3) @ v, Masking.NONE),
        (
            lambda q, k, v, m: torch.einsum(
                "bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v
            ),
            Masking.NONE,
        ),
        # A scale after the mask, another dimension, shares that are returned, other steps.
        (lambda q, k, v, m: torch.softmax((q @ k.mT + m) / 8, -1) @ v, None),
        (lambda q, k, v, m: torch.softmax(q @ k.mT, -2) @ v, None),
        (_weighed, None),
        (lambda q, k, v, m: torch.softmax(torch.tanh(q @ k.mT), -1) @ v, None),
        (lambda q, k, v, m: torch.softmax(q @ k.mT * -0.1, -1) @ v, None),
    ],
)
def test_attention_by_hand(
    function: Callable[..., Tensor | tuple[Tensor, ...]], masking: Masking | None
) -> None:
    torch.manual_seed(0)
    q, k, v = torch.rand(2, 3, 9, 16), torch.rand(2, 3, 12, 16), torch.rand(2, 3, 12, 24)
    mask = (torch.rand(2, 1, 9, 12) > 0.3).float()
    mask[..., 0] = 1
    module = Applied(function)
    rewritten = rewrite(capture_module(module, (q, k, v, mask))).graph
    graph = lower(rewritten, H200, frozenset()).graph
    kinds = [node.kind for node in graph.nodes if isinstance(node.kind, Attention)]
    assert [kind.masking for kind in kinds] == ([] if masking is None else [masking])
    torch.testing.assert_close(
        run_graph(graph, module, (q, k, v, mask), {}), module(q, k, v, mask), rtol=1e-5, atol=1e-6
    )


def test_rows_without_keys_stay_nan() -> None:
    q = torch.rand(1, 2, 5, 8)
    mask = torch.ones(1, 1, 5, 5)
    mask[..., 2, :] = 0
    module = Applied(_filled)
    rewritten = rewrite(capture_module(module, (q, q.clone(), q.clone(), mask))).graph
    graph = lower(rewritten, H200, frozenset()).graph
    assert any(isinstance(node.kind, Attention) for node in graph.nodes)
    on_another = lower(rewritten, A100, frozenset()).graph
    assert not any(isinstance(node.kind, Attention) for node in on_another.nodes)
    result = run_graph(graph, module, (q, q.clone(), q.clone(), mask), {})
    assert result[:, :, 2].isnan().all() and not result[:, :, :2].isnan().any()


def test_what_no_call_means_is_a_kernel_however_slow_the_model_has_it() -> None:
    rates = H200.attention
    assert rates is not None
    slow = replace(H200, attention=replace(rates, flops=dict.fromkeys(rates.flops, 1.0)))
    q, mask = torch.rand(2, 3, 33, 16), torch.ones(33, 33).tril()
    graph = rewrite(capture_module(Applied(_filled), (q, q, q, mask))).graph
    assert [kernel.family for kernel in schedule(graph, slow).kernels].count("attention") == 1
