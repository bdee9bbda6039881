"""Attention written by hand becomes one node, and what only looks like it does not."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.attention import Attention, Masking
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.plan import Launch
from kernelwright.lower import lower, with_heads_read_once
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


def _cosine(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (torch.cat((it, it + 1)) for it in (q, k, v))
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    scores = scores * mask[0, 0, :3, :1, None].exp() + mask[:1, :, 0, None]
    # Masks of some of the batches, in turns.
    return (scores.view(2, 2, 3, 9, 12) + mask).view(4, 3, 9, 12).softmax(-1) @ v


def _joined(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    batch, heads, rows = q.shape[:3]
    q, k, v = (it.flatten(0, 1) for it in (q, k, v))
    scores = (torch.bmm(q / 4, k.mT).view(batch, heads, rows, -1) + mask).flatten(0, 1)
    sums = torch.bmm(scores.softmax(-1), v).view(batch, heads, rows, -1)
    return sums.transpose(1, 2).flatten(2)


def _causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    scores, ones = q @ k.mT, torch.ones(q.shape[2], k.shape[2])
    rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    later = torch.full(ones.shape, -math.inf).triu(1)
    return (
        scores.masked_fill(ones.tril() == 0, -math.inf)
        .masked_fill(mask == 0, -math.inf)
        .softmax(-1)
        @ v,
        (scores / 2 + later).softmax(-1) @ v,
        torch.where(rows >= keys, scores, -1e10).softmax(-1) @ v,
        # Others.
        torch.where(rows > keys - 2, scores, -math.inf).softmax(-1) @ v,
    )


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    q = torch.cat((q, q + 1), 1)
    k, v = (it[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for it in (k, v))
    return (q @ k.mT / 4).softmax(-1) @ v


def _inside(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    packed = torch.cat((q.transpose(1, 2), k[:, :, :9].transpose(1, 2)), -1)
    own, other = packed.reshape(2, 9, 96).view(2, 9, 3, 2, 16).permute(3, 0, 2, 1, 4)
    sums = (own @ other.mT * 0.25).softmax(-1) @ v[:, :, :9]
    return sums.transpose(1, 2).reshape(2, 9, 72)


def _far(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    distance = torch.arange(-63, 1).view(1, 1, 64) * torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1)
    # One row by what sizes decide, and as many keys as there are.
    cut = distance[:, max(0, 1 - q.shape[2]) :, max(0, 64 - k.shape[2]) :]
    return (q @ k.mT + cut).softmax(-1) @ v


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
        # Any scales and masks; no softmax; heads that are joined on the way, or inside.
        (lambda q, k, v, m: torch.softmax((q @ k.mT + m) / 8, -1) @ v, Masking.ADD),
        (lambda q, k, v, m: torch.softmax(q @ k.mT * -0.1, -1) @ v, Masking.NONE),
        (
            lambda q, k, v, m: F.relu((q @ k.mT - 2).masked_fill(m == 0, -math.inf)) / 12 @ v,
            Masking.ADD,
        ),
        (_cosine, Masking.ADD),
        (_joined, Masking.ADD),
        (_inside, Masking.NONE),
        (_causal, Masking.KEEP),
        (_grouped, Masking.NONE),
        (_far, Masking.ADD),
        (lambda q, k, v, m: (q @ k.mT + m).masked_fill(m < 0.5, -1e9).softmax(-1) @ v, Masking.ADD),
        (lambda q, k, v, m: (q @ k.mT).masked_fill(m < 2, -1e9).softmax(-1) @ v, Masking.ADD),
        (lambda q, k, v, m: torch.softmax(k @ q.mT, -2).mT @ v, Masking.NONE),
        (lambda q, k, v, m: torch.softmax(q @ k[:, 0].mT[:, None], -1) @ v[:, :1], Masking.NONE),
        # Another dimension, shares that are returned or not those of a softmax, other steps.
        (lambda q, k, v, m: torch.softmax(q @ k.mT, -2) @ v, None),
        (_weighed, None),
        (lambda q, k, v, m: torch.softmax(torch.tanh(q @ k.mT), -1) @ v, None),
        (lambda q, k, v, m: (torch.softmax(q @ k.mT, -1) * 2 + m) @ v, None),
        (lambda q, k, v, m: torch.softmax((q @ k.mT) * (q @ k.mT), -1) @ v, None),
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
    graph = lower(rewritten, H200).graph
    kinds = [node.kind for node in graph.nodes if isinstance(node.kind, Attention)]
    if function is _causal:
        assert [(it.causal, it.masking) for it in kinds] == [
            (True, Masking.KEEP), (True, Masking.NONE), (True, Masking.NONE), (False, Masking.KEEP)
        ]  # fmt: skip
    else:
        assert [kind.masking for kind in kinds] == ([] if masking is None else [masking])
    torch.testing.assert_close(
        run_graph(graph, module, (q, k, v, mask), {}), module(q, k, v, mask), rtol=1e-5, atol=1e-6
    )


def _narrow(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    scores, keep = q @ k.mT / 4, mask > 0.3
    added = (scores + mask).softmax(-1, dtype=torch.float32).to(q.dtype) @ v
    both = (scores + mask + mask.mT).softmax(-1) @ v
    return added, scores.masked_fill(~keep, -math.inf).softmax(-1) @ v, both


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_16_bits_have_one_mask(dtype: torch.dtype) -> None:
    """It may be the sum of two in bf16; in fp16 such a sum may be infinite."""
    q, mask = torch.rand(1, 2, 9, 16).to(dtype), torch.rand(9, 9).to(dtype) + 0.2
    module = Applied(_narrow)
    graph = lower(rewrite(capture_module(module, (q, q, q, mask))).graph, H200).graph
    kinds = [node.kind for node in graph.nodes if isinstance(node.kind, Attention)]
    masks = [Masking.ADD, Masking.KEEP, Masking.ADD]
    found_masks = sorted(kind.masking for kind in kinds)
    assert found_masks == sorted(masks[: 3 if dtype is torch.bfloat16 else 2])
    exact = _narrow(*(it.double() for it in (q, q, q, mask)))
    found = run_graph(graph, module, (q, q, q, mask), {})
    for own, true in zip(found, exact, strict=True):
        torch.testing.assert_close(own.double(), true, rtol=8e-3, atol=0)


def test_a_scale_of_queries_in_16_bits_is_that_of_attention() -> None:
    q = torch.rand(1, 2, 9, 16).bfloat16()
    module = Applied(lambda q, k, v, mask: ((q * 0.3) @ k.mT + mask).softmax(-1) @ v)
    graph = lower(rewrite(capture_module(module, (q, q + 1, q, q @ q.mT))).graph, H200).graph
    (node,) = (it for it in graph.nodes if isinstance(it.kind, Attention))
    assert node.kind.scale == pytest.approx(0.3)
    assert not isinstance(graph[node.inputs[0]].kind, Pointwise)


def test_wide_heads_are_two_products() -> None:
    q, mask = torch.rand(1, 2, 300, 512), torch.rand(300, 300) > 0.3
    mask[5] = False
    call = F.scaled_dot_product_attention
    module = Applied(
        lambda q, k, v, m: (call(q, k, v, m), call(q, k, v, is_causal=True, scale=0.1))
    )
    graph = lower(rewrite(capture_module(module, (q, q, q, mask))).graph, H200).graph
    assert not any(isinstance(node.kind, Attention) for node in graph.nodes)
    torch.testing.assert_close(run_graph(graph, module, (q, q, q, mask), {}), module(q, q, q, mask))


def test_rows_without_keys_stay_nan() -> None:
    q = torch.rand(1, 2, 5, 8)
    mask = torch.ones(1, 1, 5, 5)
    mask[..., 2, :] = 0
    module = Applied(_filled)
    rewritten = rewrite(capture_module(module, (q, q.clone(), q.clone(), mask))).graph
    graph = lower(rewritten, H200).graph
    assert any(isinstance(node.kind, Attention) for node in graph.nodes)
    on_another = lower(rewritten, A100).graph
    assert not any(isinstance(node.kind, Attention) for node in on_another.nodes)
    result = run_graph(graph, module, (q, q.clone(), q.clone(), mask), {})
    assert result[:, :, 2].isnan().all() and not result[:, :, :2].isnan().any()


def test_what_no_call_means_is_a_kernel_however_slow_the_model_has_it() -> None:
    rates = H200.attention
    assert rates is not None
    slow = replace(H200, attention=replace(rates, flops=1.0))
    q, mask = torch.rand(2, 3, 33, 16), torch.ones(33, 33).tril()
    graph = rewrite(capture_module(Applied(_filled), (q, q, q, mask))).graph
    assert [kernel.family for kernel in schedule(graph, slow).kernels].count("attention") == 1


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """As transformers repeats the keys and values of a group of heads."""
    batch, heads, length, depth = k.shape
    repeated = (
        it[:, :, None].expand(batch, heads, 4, length, depth).reshape(batch, -1, length, depth)
        for it in (k, v)
    )
    return F.scaled_dot_product_attention(q, *repeated, attn_mask=mask)


@pytest.mark.parametrize("takes", [True, False])
@torch.no_grad()
def test_in_16_bits_kernels_alone_read_heads_that_repeat_once(takes: bool) -> None:
    """PyTorch gets them as the module repeated them: its fastest kernels want that."""
    q, k, v = (torch.rand(2, heads, 40, 16).bfloat16() for heads in (8, 2, 2))
    module, given = Applied(_grouped), (q, k, v, torch.ones(40, 40).tril() > 0)
    lowered = lower(rewrite(capture_module(module, given)).graph, H200).graph
    graph = with_heads_read_once(lowered, lambda node: takes)
    (node,) = (it for it in graph.nodes if isinstance(it.kind, Attention))
    heads = [graph[name].tensor.shape[1].hint for name in node.inputs[:3]]
    assert heads == ([8, 2, 2] if takes else [8, 8, 8])
    torch.testing.assert_close(
        run_graph(graph, module, given, {}), module(*given), rtol=1e-2, atol=1e-2
    )


def test_a_plan_of_grouped_heads_in_16_bits_copies_none() -> None:
    q, k, v = (torch.rand(4, heads, 512, 64).bfloat16() for heads in (16, 4, 4))
    graph = capture_module(Applied(_grouped), (q, k, v, torch.ones(512, 512).tril() > 0))
    plan = schedule(rewrite(graph).graph, H200)
    (launch,) = (step for step in plan.steps if isinstance(step, Launch))
    heads = [kind.shape[1].hint for kind in launch.kernel.inputs[:3]]
    assert heads == [16, 4, 4]
