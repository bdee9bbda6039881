"""Every family of composite calls: graphs of our own nodes that compute what PyTorch computes.

Each case is one module of many calls, captured once, on float32 and on bfloat16.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Opaque, Pointwise, Reduce, Window

Run = Callable[..., Any]
Calls = Callable[..., tuple[torch.Tensor, ...]]

INF, NAN = float("inf"), float("nan")


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Calls) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def holds(run: Run, module: nn.Module, *arguments: Any, tolerance: float = 2e-5) -> Graph:
    """The graph of a module, which leaves nothing to PyTorch and agrees with it."""
    graph = capture_module(module, arguments)
    left = [str(node.origin) for node in graph.nodes if isinstance(node.kind, Opaque)]
    assert not left
    actual, expected = run(graph, module, arguments, {}), module(*arguments)
    for ours, theirs in zip(actual, expected, strict=True):
        rounding = 3e-2 if theirs.dtype is torch.bfloat16 else tolerance
        torch.testing.assert_close(ours, theirs, rtol=rounding, atol=rounding, equal_nan=True)
    return graph


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def _reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    truth = x > 0.5
    return (
        *(x.sum(), x.sum((0, 2)), x.sum(1, keepdim=True), x.mean(), x.mean((0, 1)), x.prod(2)),
        *(x.amax((0, 2)), x.amin(1), x.max(), x.min(), *x.max(1), *x.min(0), *x.aminmax(dim=2)),
        *(x.argmax(), x.argmin(1, keepdim=True), truth.any(), truth.all(1), truth.any((0, 1))),
        *(truth.sum(1), truth.max(1)[0], x.to(torch.int32).sum(1), x.count_nonzero(1)),
        *(x.var(), x.var(1, unbiased=False), x.std((0, 2)), *torch.var_mean(x, 1, correction=2)),
        *(x.logsumexp((0, 1)), x.nansum(1), x.nanmean(2), x.sum(1, dtype=torch.float64)),
        *(x[0, 0, 0].sum(), x[0, 0, 0].std(unbiased=False), x[:, :1].var(1), x[:0].sum(0)),
    )


def _norms_of_vectors(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    orders = (0, 1, 2, 3, 0.5, INF, -INF)
    return (
        *(torch.linalg.vector_norm(x, order, dim=1) for order in orders),
        *(torch.norm(x), x.norm(p=1, dim=(0, 2), keepdim=True), torch.linalg.norm(x)),
        *(torch.linalg.matrix_norm(x), torch.dist(x, x.flip(0), 3), F.normalize(x, dim=1)),
        *(F.cosine_similarity(x, x.flip(2), dim=1), F.pairwise_distance(x, x.flip(1), 3.0)),
    )


def _softmaxes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    masked = x.masked_fill(x > 0.5, -INF)
    return (
        *(F.softmax(x, 1), F.log_softmax(x, -1), F.softmin(x, 0), F.softmax(masked, 2)),
        *(F.log_softmax(masked, 0), masked.logsumexp(1), F.softmax(x, 1, dtype=torch.float64)),
        *(F.softmax(x[0, 0, 0], 0), (masked * -1).logsumexp(1), F.softmax(x[:, :, :1], 2)),
    )


def _regressions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, probability = x.flip(0), torch.sigmoid(x)
    side = torch.where(y > 0, 1.0, -1.0).to(x.dtype)
    return (
        *(F.mse_loss(x, y), F.mse_loss(x, y, reduction="none"), F.l1_loss(x, y, reduction="sum")),
        *(F.smooth_l1_loss(x, y, beta=0.3), F.smooth_l1_loss(x, y, beta=0.0)),
        *(F.huber_loss(x, y, delta=0.7), F.soft_margin_loss(x, side)),
        *(F.kl_div(x, probability), F.kl_div(x, y, reduction="batchmean", log_target=True)),
        *(F.hinge_embedding_loss(x, side, margin=0.3), F.margin_ranking_loss(x, y, side, 0.2)),
        *(F.binary_cross_entropy(probability, probability.flip(1), weight=probability),),
        *(F.binary_cross_entropy_with_logits(x, probability, pos_weight=probability[0, 0]),),
        *(F.binary_cross_entropy_with_logits(x, probability, weight=probability[0]),),
        *(F.poisson_nll_loss(x, side + 1, full=True), F.poisson_nll_loss(x, side, False)),
        *(F.triplet_margin_loss(x, y, x.flip(1), p=1.0, swap=True),),
        *(F.triplet_margin_loss(x, y, x.flip(1), margin=0.2, reduction="none"),),
        *(F.cosine_embedding_loss(x[0], y[0], side[0, :, 0], margin=0.1),),
    )


def _classes(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows of x (batch, classes, place); the target 2 stands for no class in some."""
    scores, weight = F.log_softmax(x, 1), torch.sigmoid(x[0, :, 0])
    share = F.softmax(x.flip(2), 1)
    return (
        *(F.cross_entropy(x, target), F.cross_entropy(x, target, ignore_index=2)),
        *(F.cross_entropy(x, target, weight, reduction="none", ignore_index=2),),
        *(F.cross_entropy(x, target, weight, label_smoothing=0.1, ignore_index=2),),
        *(F.cross_entropy(x, target, label_smoothing=0.2, reduction="sum"),),
        *(F.cross_entropy(x, share), F.cross_entropy(x, share, weight, label_smoothing=0.1)),
        *(F.nll_loss(scores, target), F.nll_loss(scores, target, weight, ignore_index=2)),
        *(F.nll_loss(scores[0, :, 0], target[0, 0]), F.cross_entropy(x[:, :, 0], target[:, 0])),
        *(F.cross_entropy(x.to(torch.float16), target, reduction="none").float(),),
    )


def _pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x (batch, channels, 9, 8)."""
    row = x[0]
    holes = x.masked_fill(x > 1, NAN)
    return (
        *(F.max_pool2d(x, 3, 2, 1), F.max_pool2d(holes, (2, 3), ceil_mode=True)),
        *(F.max_pool1d(row, 3, 1, 1, dilation=2),),
        *(F.avg_pool1d(row, 3), F.avg_pool2d(x, 3, 2, 1)),
        *(F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 2, divisor_override=3)),
        *(F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),),
        *(F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool1d(row, 1), F.lp_pool2d(x.abs(), 3, 2)),
        *(F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, (None, 1))),
    )


def _scans(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *(x.cumsum(1), x.cumprod(-1), (x > 0).cumsum(0), x.flip(1).cumsum(1).flip(1)),
        *(x.cumsum(2, dtype=torch.float64), x[0, 0, 0].cumsum(0), x.to(torch.int8).cumprod(0)),
    )


def _joins(x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *(torch.cat([x, x.double(), x[:, :0]], 1), torch.stack([x, x + 1], -1)),
        *(torch.hstack([x, x]), torch.cat([x.flatten()[:0], x + 1]), F.pad(x, (1, 2, 0, -1))),
        *(F.pad(x, (-1, 1), value=0.5), F.pad(place, (2, 0), value=3), x[:, place], x[place]),
        *(x.index_select(2, place), F.embedding(place, x[0]), x[0, 0][place.reshape(2, -1)]),
        *(F.one_hot(place, 7), x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(3, 1)),
        *(F.pixel_shuffle(x.reshape(4, -1, 2)[:, :4], 2), F.channel_shuffle(x, 2)),
        *(F.glu(x, 0), F.prelu(x, x[0, :, 0]), F.prelu(x, x[0, 0, :1])),
        *(F.interpolate(x, scale_factor=2.0), torch.diff(x, dim=0)),
        *(torch.diff(place, prepend=place[:1] - 1), torch.diff(x, dim=1, append=x[:, :2])),
    )


def both(calls: Calls) -> Calls:
    """The calls on float32 and on bfloat16."""
    return lambda x, *rest: (*calls(x, *rest), *calls(x.to(torch.bfloat16), *rest))


def _pools_of_blocks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """For which PyTorch has no 16-bit kernel on the CPU."""
    block = x.unsqueeze(2).expand(-1, -1, 5, -1, -1)
    return F.avg_pool3d(block, 3, 2, 1), F.adaptive_avg_pool3d(block, 1), F.max_pool3d(block, 2)


X = numbers(4, 6, 4)
PLACES = torch.tensor([2, 0, 1, 3])


@pytest.mark.parametrize(
    ("calls", "arguments"),
    [
        (_reductions, (X,)),
        (_norms_of_vectors, (X,)),
        (_softmaxes, (X,)),
        (_regressions, (X,)),
        (_classes, (X, torch.arange(16).reshape(4, 4) % 6)),
        (_pools, (numbers(2, 3, 9, 8),)),
        (_scans, (X,)),
        (_joins, (X, PLACES)),
    ],
)
def test_values(calls: Calls, arguments: tuple[Any, ...], run: Run) -> None:
    holds(run, Wrapped(both(calls)), *arguments)


def test_values_in_float32(run: Run) -> None:
    holds(run, Wrapped(_pools_of_blocks), numbers(2, 3, 9, 8))


# --- Norms of modules --------------------------------------------------------------------------


class Norms(nn.Module):
    """Every norm, one after the other on the same input."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layers = nn.ModuleList(
            [
                *(nn.LayerNorm((5, 6)), nn.LayerNorm(6, bias=False), nn.RMSNorm(6, eps=1e-3)),
                *(nn.RMSNorm((5, 6)), nn.GroupNorm(2, 4), nn.GroupNorm(4, 4, affine=False)),
                *(nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4)),
                nn.InstanceNorm2d(4, affine=True, track_running_stats=True, momentum=0.3),
                *(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False, momentum=0.3)),
                nn.BatchNorm2d(4, track_running_stats=False),
            ]
        )
        for value in [*self.parameters(), *self.buffers()]:
            if value.is_floating_point():
                value.data.copy_(torch.rand(value.shape, generator=generator) + 0.5)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [layer(x) for layer in self.layers]


@pytest.mark.parametrize("mode", [nn.Module.train, nn.Module.eval])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms(mode: Callable[[nn.Module], nn.Module], dtype: torch.dtype, run: Run) -> None:
    x = (3 * numbers(3, 4, 5, 6) + 1).to(dtype)
    ours, theirs = mode(Norms().to(dtype)), mode(Norms().to(dtype))
    graph = capture_module(ours, (x,))
    assert not [node for node in graph.nodes if isinstance(node.kind, Opaque)]
    results = [*run(graph, ours, (x,), {}), *ours.state_dict().values()]
    expected = [*theirs(x), *theirs.state_dict().values()]
    rounding = 1e-2 if dtype is torch.float16 else 2e-5
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=rounding, atol=rounding)
    changed = {update.path.rpartition(".")[2] for update in graph.updates}
    statistics = {"running_mean", "running_var", "num_batches_tracked"}
    assert changed == (statistics if ours.training else set())


# --- How the graphs look -----------------------------------------------------------------------

HALF = X.to(torch.float16)
LABELS = torch.zeros(4, 4, dtype=torch.int64)
SAMPLES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "softmax": (nn.Softmax(1), (X,)),
    "group_norm_f16": (nn.GroupNorm(3, 6, dtype=torch.float16), (HALF,)),
    "batch_norm": (nn.BatchNorm1d(6), (X,)),
    "cross_entropy": (nn.CrossEntropyLoss(label_smoothing=0.1), (X, LABELS)),
    "avg_pool_ceil": (nn.AvgPool1d(3, 2, 1, ceil_mode=True, count_include_pad=False), (X,)),
    "var_f16": (Wrapped(lambda x: x.var((0, 2))), (HALF,)),
    "cumsum_i64": (Wrapped(lambda x: x.long().cumsum(1)), (X,)),
    "embedding_and_cat": (Wrapped(lambda x, i: torch.cat([F.embedding(i, x), x])), (X[0], PLACES)),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_graph(name: str, golden: Callable[[str, str], None]) -> None:
    module, arguments = SAMPLES[name]
    graph = capture_module(module, arguments, name=name)
    nodes = tuple(replace(node, source=None) for node in graph.nodes)
    golden(str(replace(graph, nodes=nodes)), f"{name}.txt")


def kinds(graph: Graph) -> list[str]:
    return [type(node.kind).__name__ for node in graph.nodes]


def test_a_16_bit_norm_widens_once_and_narrows_once(run: Run) -> None:
    x = X.to(torch.float16)
    graph = holds(run, Wrapped(lambda x: [F.layer_norm(x, (4,))]), x, tolerance=4e-3)
    casts = str(graph).count("cast<")
    assert casts == 2
    assert [str(node.kind.op) for node in graph.nodes if isinstance(node.kind, Reduce)] == [
        "moments"
    ]


def test_unused_places_of_maxima_are_not_looked_for() -> None:
    graph = capture_module(Wrapped(lambda x: x.max(1)[0]), (X,))
    assert "argmax" not in str(graph)
    assert kinds(graph) == ["Input", "Reduce", "View"]


def test_places_in_windows_are_left_to_pytorch() -> None:
    graph = capture_module(Wrapped(lambda x: F.max_pool1d(x, 2, return_indices=True)), (X,))
    assert "Opaque" in kinds(graph)
    assert not [node for node in graph.nodes if isinstance(node.kind, Window)]


def test_windows_that_differ_are_left_to_pytorch() -> None:
    graph = capture_module(Wrapped(lambda x: F.adaptive_avg_pool1d(x, 3)), (X,))
    assert kinds(graph) == ["Input", "Opaque"]


def test_a_rule_that_gives_up_leaves_no_node() -> None:
    graph = capture_module(Wrapped(lambda x: x.any(dim=())), (X > 0,))
    assert kinds(graph) == ["Input", "Opaque"]


def test_divisors_follow_the_sizes(run: Run) -> None:
    def calls(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.mean((0, 1)), x.var(), F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)

    module = Wrapped(calls)
    graph = capture_module(module, (X,))
    other = numbers(3, 7, 9)
    for ours, theirs in zip(run(graph, module, (other,), {}), module(other), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_coordinate_counts_from_the_end() -> None:
    graph = capture_module(
        Wrapped(F.cross_entropy), (numbers(3, 5, 2, 2), torch.zeros(3, 2, 2).long())
    )
    picks = [node for node in graph.nodes if node.name.startswith("picked_if")]
    assert [str(node.kind.expr) for node in picks if isinstance(node.kind, Pointwise)] == [
        "where(eq(coordinate(-3), %1), %0, 0.0)"
    ]
