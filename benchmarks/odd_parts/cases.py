"""Problems at round sizes, and each at two odd ones: rows of no whole vectors, maps of 7 x 7 and
49 x 49, batches of 65, one element more than a tile."""

from collections.abc import Iterator
from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One module at three sizes. `{0}`, `{1}` stand in its text for the sizes."""

    family: str
    name: str
    forward: str
    """What `forward` returns of `x` and, where there is a second input, of `y`."""
    inputs: tuple[str, ...]
    """Shape of each input, or the call that makes it."""
    init: str = "pass"
    """What the constructor does besides."""
    sizes: tuple[Sizes, Sizes, Sizes]
    """The round ones first."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A case at one of its sizes."""

    case: Case
    sizes: Sizes
    is_odd: bool

    @property
    def name(self) -> str:
        """A word for a folder and a task: `softmax-32768x2049`."""
        return f"{self.case.name}-{'x'.join(map(str, self.sizes))}"

    @property
    def text(self) -> str:
        """A file with `Model`, `get_inputs` and `get_init_inputs`."""
        case, sizes = self.case, self.sizes
        made = [it if "(" in it else f"torch.rand({it})" for it in case.inputs]
        return _TEXT.format(
            init=case.init.format(*sizes),
            arguments=", ".join(("x", "y")[: len(made)]),
            forward=case.forward.format(*sizes),
            inputs=", ".join(made).format(*sizes),
        )


_TEXT = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _case(
    family: str, name: str, forward: str, inputs: str, *sizes: Sizes, init: str = "pass"
) -> Case:
    """`inputs`: shapes with semicolons between them."""
    (rounded, first, second) = sizes
    return Case(
        family=family,
        name=name,
        forward=forward,
        inputs=tuple(inputs.split("; ")),
        init=init,
        sizes=(rounded, first, second),
    )


_ROWS = ((32768, 2048), (32767, 2049), (75001, 593))
_LONG = ((512, 65536), (511, 65535), (97, 393217))
_MAPS = ((128, 64, 64, 64), (65, 64, 63, 127), (129, 512, 7, 7))
_LINES = ((8192, 8192), (8191, 8193), (65, 1000003))
_MANY = "{0}, {1}, {2}, {3}"
_TWO = "{0}, {1}"
_LABELS = "{0}, {1}; torch.randint(0, {1}, ({0},))"
_PRODUCT = "{0}, {2}; {2}, {1}"

CASES: tuple[Case, ...] = (
    _case("pointwise", "gelu", "F.gelu(x)", _TWO, *_LINES),
    _case("pointwise", "bias", "torch.relu(x + self.b)", _TWO, *_ROWS,
          init="self.b = nn.Parameter(torch.rand({1}))"),
    _case("pointwise", "scales", "torch.relu(x * self.s + self.b)", _MANY,
          (128, 256, 48, 48), (128, 256, 49, 49), (1024, 512, 7, 7),
          init="self.s, self.b = (nn.Parameter(torch.rand({1}, 1, 1)) for _ in range(2))"),
    _case("pointwise", "column", "x * y", "{0}, {1}; {0}, 1", *_LINES),
    _case("pointwise", "gate", "F.silu(x[:, :{1}]) * x[:, {1}:]", "{0}, 2 * {1}", *_ROWS),
    _case("pointwise", "transposed", "x + y.mT", "{0}, {1}; {1}, {0}",
          (4096, 8192), (4097, 8191), (593, 37901)),
    _case("rows", "softmax", "torch.softmax(x, 1)", _TWO, *_ROWS),
    _case("rows", "log_softmax", "torch.log_softmax(x, 1)", _TWO, *_LONG),
    _case("rows", "layer_norm", "F.layer_norm(x, ({1},), self.w, self.b)", _TWO, *_ROWS,
          init="self.w, self.b = (nn.Parameter(torch.rand({1})) for _ in range(2))"),
    _case("rows", "rms_norm", "x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * self.w",
          _TWO, *_LONG, init="self.w = nn.Parameter(torch.rand({1}))"),
    _case("rows", "sum", "x.sum(1)", _TWO, *_ROWS),
    _case("rows", "argmax", "x.argmax(1)", _TWO, *_LONG),
    _case("rows", "mean_of_middle", "x.mean(1)", "{0}, {1}, {2}",
          (64, 512, 1024), (65, 511, 1023), (7, 4097, 1149)),
    _case("rows", "maximum_of_columns", "x.amax(0)", _TWO,
          (32768, 1024), (32769, 1023), (65537, 593)),
    _case("norms of maps", "batch_norm", "torch.relu(self.n(x))", _MANY, *_MAPS,
          init="self.n = nn.BatchNorm2d({1})"),
    _case("norms of maps", "batch_norm_of_columns", "self.n(x)", _TWO,
          (32768, 1024), (32769, 1023), (65537, 379), init="self.n = nn.BatchNorm1d({1})"),
    _case("norms of maps", "group_norm", "torch.relu(self.n(x))", _MANY, *_MAPS,
          init="self.n = nn.GroupNorm(8, {1})"),
    _case("norms of maps", "instance_norm", "F.instance_norm(x)", _MANY, *_MAPS),
    _case("pooling", "max_pool2d", "F.max_pool2d(x, 2)", _MANY,
          (64, 64, 112, 112), (65, 64, 113, 111), (64, 32, 149, 193)),
    _case("pooling", "avg_pool2d", "F.avg_pool2d(x, 3, 1, 1)", _MANY,
          (32, 64, 112, 112), (33, 64, 113, 111), (1023, 64, 19, 19)),
    _case("pooling", "max_pool1d", "F.max_pool1d(x, 4, 2)", "{0}, {1}, {2}",
          (64, 128, 4096), (65, 127, 4099), (129, 192, 1001)),
    _case("pooling", "avg_pool1d", "F.avg_pool1d(x, 8, 1, 4)", "{0}, {1}, {2}",
          (64, 128, 4096), (65, 127, 4099), (129, 192, 1001)),
    _case("pooling", "max_pool3d", "F.max_pool3d(x, 2)", "{0}, 16, {1}, {2}, {3}",
          (32, 32, 64, 64), (33, 31, 63, 65), (65, 19, 37, 49)),
    _case("scans", "cumsum", "torch.cumsum(x, 1)", _TWO, *_ROWS),
    _case("scans", "cumprod", "torch.cumprod(x, 1)", _TWO, *_LONG),
    _case("scans", "cumsum_of_columns", "torch.cumsum(x, 0)", _TWO,
          (8192, 4096), (8193, 4095), (16385, 1021)),
    _case("products", "square", "x @ y", _PRODUCT,
          (2048, 2048, 2048), (2047, 2049, 2051), (1025, 2049, 4097)),
    _case("products", "small_k", "x @ y", _PRODUCT,
          (16384, 4096, 32), (16385, 4095, 31), (32769, 2047, 32)),
    _case("products", "skinny", "x @ y", _PRODUCT,
          (32768, 32, 2048), (32767, 31, 2049), (65537, 16, 1023)),
    _case("products", "deep", "x @ y", _PRODUCT,
          (256, 256, 131072), (255, 257, 131071), (593, 379, 32769)),
    _case("products", "batched", "torch.bmm(x, y)", "{0}, {1}, {3}; {0}, {3}, {2}",
          (64, 256, 256, 128), (65, 255, 257, 127), (129, 197, 197, 64)),
    _case("products", "linear", "torch.relu(self.l(x))", "{0}, {2}",
          (128, 4096, 4096), (65, 4095, 4097), (513, 2047, 1021),
          init="self.l = nn.Linear({2}, {1})"),
    _case("matrix-vector", "matrix_vector", "x @ y", "{0}, {1}; {1}, 1",
          (8192, 8192), (8191, 8193), (593, 65537)),
    _case("convolutions", "conv2d", "torch.relu(self.c(x))", "{0}, {1}, {2}, {3}",
          (32, 64, 56, 56), (33, 64, 57, 55), (16, 64, 19, 149),
          init="self.c = nn.Conv2d({1}, 64, 3, padding=1)"),
    _case("convolutions", "pointwise_conv", "self.c(x)", "{0}, {1}, {2}, {3}",
          (32, 128, 56, 56), (33, 127, 57, 55), (65, 256, 7, 7),
          init="self.c = nn.Conv2d({1}, 128, 1)"),
    _case("convolutions", "depthwise", "self.c(x)", "{0}, {1}, {2}, {3}",
          (32, 128, 112, 112), (33, 127, 113, 111), (129, 256, 29, 31),
          init="self.c = nn.Conv2d({1}, {1}, 3, padding=1, groups={1})"),
    _case("convolutions", "conv1d", "self.c(x)", "{0}, {1}, {2}",
          (32, 64, 16384), (33, 63, 16381), (17, 64, 32771),
          init="self.c = nn.Conv1d({1}, 64, 5, padding=2)"),
    _case("losses", "mse", "F.mse_loss(x, y)", "{0}, {1}; {0}, {1}", *_LINES),
    _case("losses", "cross_entropy", "F.cross_entropy(x, y)", _LABELS, *_ROWS),
    _case("losses", "kl_div", "F.kl_div(torch.log(x + 0.01), y, reduction='batchmean')",
          "{0}, {1}; {0}, {1}", *_ROWS),
)  # fmt: skip
"""Forty cases: eighty problems at odd sizes."""


def problems() -> Iterator[Problem]:
    """Each case's odd sizes, one of them before the round ones."""
    for case in CASES:
        for at in (1, 0, 2):
            yield Problem(case=case, sizes=case.sizes[at], is_odd=at > 0)
