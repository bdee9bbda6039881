"""The kernels' own tensor-core product, source for source, at small sizes with odd edges."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.program.abi import pack

Build = Callable[..., Any]

_SPLIT: dict[str, object] = {
    "ELEMENT": "float",
    "RESULT": "float",
    "INSTRUCTION": "Wgmma128F16",
    "FEED_OF_TEST": "SPLIT",
    "STAGES_OF_TEST": 3,
    "CLUSTER_OF_TEST": 2,
    "SLICES_OF_TEST": 1,
    "RESIDENT_OF_TEST": 1,
    "TRANSPOSED_OF_TEST": 0,
    "LHS_OF_TEST": "K",
    "RHS_OF_TEST": "MN",
}
_BUFFERED = _SPLIT | {"STAGES_OF_TEST": 2, "CLUSTER_OF_TEST": 1}
_AHEAD = _SPLIT | {"FEED_OF_TEST": "AHEAD", "RHS_OF_TEST": "K"}
_CONVERT = _SPLIT | {"FEED_OF_TEST": "CONVERT"}
_INSIDE = _SPLIT | {"FEED_OF_TEST": "INSIDE", "CLUSTER_OF_TEST": 4}
_DIRECT = _SPLIT | {"FEED_OF_TEST": "DIRECT", "STAGES_OF_TEST": 4}
_ROUNDED = _DIRECT | {"INSTRUCTION": "Wgmma128Tf32", "RHS_OF_TEST": "K"}
_NARROW = _ROUNDED | {"INSTRUCTION": "Wgmma32Tf32", "CLUSTER_OF_TEST": 1, "RESIDENT_OF_TEST": 2}
_DTYPES = {"float": torch.float32, "__half": torch.float16, "__nv_bfloat16": torch.bfloat16}


def _to_tf32(numbers: torch.Tensor) -> torch.Tensor:
    """The nearest numbers of eleven bits, halves to even ones."""
    bits = numbers.view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13).view(torch.float32)


def _factors(config: dict[str, object], m: int, n: int, k: int) -> tuple[torch.Tensor, ...]:
    """Factors that lie as the configuration says."""
    dtype = _DTYPES[str(config["ELEMENT"])]
    lhs, rhs = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    if config["INSTRUCTION"] == "Wgmma128Tf32":
        lhs, rhs = _to_tf32(lhs), _to_tf32(rhs)
    if config["LHS_OF_TEST"] == "MN":
        lhs = lhs.T.contiguous().T
    if config["RHS_OF_TEST"] == "K":
        rhs = rhs.T.contiguous().T
    return lhs, rhs


def _multiply(
    unit: Any,
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    out: torch.Tensor | None = None,
    joining: tuple[torch.Tensor, ...] = (),
) -> torch.Tensor:
    if out is None:
        out = torch.full((lhs.shape[0], rhs.shape[1]), torch.nan)
    words = pack([out, lhs, rhs, *joining])
    memory = torch.empty(unit.run("workspace", words), dtype=torch.uint8)
    assert unit.run("launch", words, memory) == 0
    return out


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        pytest.param(_SPLIT, (130, 200, 150), id="split"),
        pytest.param(_SPLIT | {"LHS_OF_TEST": "MN", "RHS_OF_TEST": "K"}, (300, 270, 330), id="TT"),
        pytest.param(_SPLIT | {"CLUSTER_OF_TEST": 1, "RHS_OF_TEST": "K"}, (70, 301, 256), id="NT"),
        pytest.param(
            _SPLIT | {"INSTRUCTION": "Wgmma64F16", "SLICES_OF_TEST": 3}, (140, 70, 700), id="slices"
        ),
        pytest.param(_BUFFERED, (150, 160, 200), id="boxes of results"),
        pytest.param(_BUFFERED, (150, 261, 70), id="rows of results"),
        pytest.param(
            _BUFFERED | {"INSTRUCTION": "Wgmma64F16", "STAGES_OF_TEST": 4, "TRANSPOSED_OF_TEST": 1},
            (300, 96, 40),
            id="columns of results",
        ),
        pytest.param(
            _AHEAD | {"CLUSTER_OF_TEST": 1, "LHS_OF_TEST": "MN"}, (650, 140, 72), id="rows ahead"
        ),
        pytest.param(_CONVERT, (130, 200, 152), id="convert"),
        pytest.param(_CONVERT | {"LHS_OF_TEST": "MN"}, (132, 72, 600), id="convert columns"),
        pytest.param(
            _INSIDE | {"LHS_OF_TEST": "MN", "RHS_OF_TEST": "K", "SLICES_OF_TEST": 3},
            (132, 70, 600),
            id="inside, slices",
        ),
        pytest.param(_DIRECT | {"ELEMENT": "__half"}, (130, 200, 152), id="half"),
        pytest.param(
            _DIRECT | {"ELEMENT": "__nv_bfloat16", "INSTRUCTION": "Wgmma128Bf16"},
            (70, 136, 400),
            id="bfloat16",
        ),
    ],
)
def test_product(build: Build, config: dict[str, object], sizes: tuple[int, int, int]) -> None:
    unit = build("gemm", **config)
    lhs, rhs = _factors(config, *sizes)
    out = _multiply(unit, lhs, rhs)
    assert unit.session.findings == ()
    exact = lhs.double() @ rhs.double()
    scale = lhs.double().norm(dim=1, keepdim=True) * rhs.double().norm(dim=0)
    assert ((out - exact).abs() / scale).max() < 5e-7


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        pytest.param(_SPLIT, (150, 160, 40), id="split"),
        pytest.param(_BUFFERED, (150, 261, 40), id="buffered"),
        pytest.param(
            _DIRECT
            | {"ELEMENT": "__nv_bfloat16", "INSTRUCTION": "Wgmma128Bf16", "CLUSTER_OF_TEST": 1},
            (70, 200, 40),
            id="bfloat16",
        ),
        pytest.param(
            _ROUNDED | {"FEED_OF_TEST": "TURNS", "MASKS_OF_TEST": "1, 2, 4"},
            (150, 200, 40),
            id="TF32, what joins is known",
        ),
        pytest.param(
            _BUFFERED | {"INSTRUCTION": "Wgmma64F16", "STAGES_OF_TEST": 4, "TRANSPOSED_OF_TEST": 1},
            (300, 96, 40),
            id="columns of results",
        ),
    ],
)
def test_operands_join_by_row_by_column_and_by_place(
    build: Build, config: dict[str, object], sizes: tuple[int, int, int]
) -> None:
    unit = build("gemm", **config, JOINS=1)
    lhs, rhs = _factors(config, *sizes)
    row, column = torch.rand(sizes[0], 1), torch.rand(sizes[1])
    at = torch.rand(sizes[:2])
    out = _multiply(unit, lhs, rhs, joining=(row, column, at))
    assert unit.session.findings == ()
    exact = (lhs.double() @ rhs.double()) * row + column - at
    scale = lhs.double().norm(dim=1, keepdim=True) * rhs.double().norm(dim=0) + 1
    assert ((out - exact).abs() / scale).max() < 5e-7


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        pytest.param(_ROUNDED, (130, 200, 148), id="together"),
        pytest.param(
            _ROUNDED
            | {"INSTRUCTION": "Wgmma192Tf32", "FEED_OF_TEST": "TURNS", "CLUSTER_OF_TEST": 1},
            (150, 230, 36),
            id="in turns",
        ),
        pytest.param(_NARROW, (290, 28, 40), id="32 columns"),
        pytest.param(_NARROW, (140, 45, 12), id="tiles of 32 columns, without vectors"),
        pytest.param(
            _NARROW | {"INSTRUCTION": "Wgmma16Tf32", "RESIDENT_OF_TEST": 3, "STAGES_OF_TEST": 2},
            (150, 24, 100),
            id="16 columns",
        ),
        pytest.param(
            _NARROW | {"INSTRUCTION": "Wgmma16Tf32"}, (129, 21, 8), id="16, without vectors"
        ),
    ],
)
def test_float32_as_tf32(build: Build, config: dict[str, object], sizes: tuple[int, ...]) -> None:
    """Factors are rounded to the nearest number; what is special stays so."""
    unit = build("gemm", **config)
    m, n, k = sizes
    lhs, rhs = torch.rand(m, k), torch.rand(n, k).T
    lhs[3, 5], lhs[4, 0], lhs[5, 1] = torch.inf, torch.nan, 3.4028e38
    out = _multiply(unit, lhs, rhs)
    assert unit.session.findings == ()
    assert out[3].isinf().all() and out[4].isnan().all() and out[5].isinf().all()
    lhs, out = lhs[6:], out[6:]
    exact = _to_tf32(lhs).double() @ _to_tf32(rhs.T.contiguous()).T.double()
    assert ((out - exact).abs() / exact).max() < 3e-6


def test_rows_of_16_bits_that_begin_anywhere(build: Build) -> None:
    """Some past an aligned address, at odd and even distances; nothing beside them is written."""
    config = _DIRECT | {"ELEMENT": "__half", "RESULT": "__half", "STAGES_OF_TEST": 2}
    unit = build("gemm", **config)
    for m, n, before, after in ((130, 261, 0, 0), (70, 133, 3, 2), (20, 128, 1, 0), (17, 5, 0, 2)):
        lhs, rhs = _factors(config, m, n + -n % 8, 64)
        memory = torch.full((m, before + n + after), 7.0, dtype=torch.float16)
        _multiply(unit, lhs, rhs[:, :n], memory[:, before : before + n])
        exact = (lhs.double() @ rhs.double())[:, :n]
        found = memory[:, before : before + n].double()
        assert ((found - exact).abs() <= 1e-3 * exact.abs() + 1e-3).all()
        assert (memory[:, :before] == 7).all() and (memory[:, before + n :] == 7).all()
    assert unit.session.findings == ()


def test_few_columns_of_16_bits(build: Build) -> None:
    """Of factors that are rounded to TF32: a tile has half of a line."""
    unit = build("gemm", **(_NARROW | {"RESULT": "__half"}))
    for m, n in ((140, 28), (70, 45)):
        lhs, rhs = torch.rand(m, 20), torch.rand(n, 20).T
        found = _multiply(unit, lhs, rhs, torch.full((m, n), torch.nan, dtype=torch.float16))
        exact = lhs.double() @ rhs.double()
        assert ((found.double() - exact).abs() <= 2e-3 * exact).all()
    assert unit.session.findings == ()


@pytest.mark.parametrize("masks", ["1, 2, 4", "1, 6, 0"], ids=["by place", "by column"])
def test_what_joins_rows_of_16_bits(build: Build, masks: str) -> None:
    """In lines, in vectors of 8 bytes, and where rows begin anywhere, at edges and inside."""
    config = _DIRECT | {"ELEMENT": "__half", "RESULT": "__half", "STAGES_OF_TEST": 2}
    unit = build("gemm", **config, MASKS_OF_TEST=masks, JOINS=1)
    for m, n, before in ((140, 264, 0), (70, 132, 4), (35, 133, 3), (9, 70, 1)):
        lhs, rhs = _factors(config, m, n + -n % 8, 64)
        memory = torch.full((m, before + n + 1), 7.0, dtype=torch.float16)
        if n % 4 == 0:  # Rows begin at vectors.
            memory = memory.new_full((m, before + n), 7.0)
        sizes = ((m, 1), (n,), (m, n) if masks.endswith("4") else (n,))
        joining = tuple(torch.rand(size).half() for size in sizes)
        _multiply(unit, lhs, rhs[:, :n], memory[:, before : before + n], joining=joining)
        row, column, at = (it.double() for it in joining)
        exact = (lhs.double() @ rhs.double())[:, :n] * row + column - at
        found = memory[:, before : before + n].double()
        assert ((found - exact).abs() <= 1e-3 * exact.abs() + 1e-3).all()
        assert (memory[:, :before] == 7).all() and (memory[:, before + n :] == 7).all()
    assert unit.session.findings == ()


@pytest.mark.parametrize("config", [_SPLIT, _BUFFERED], ids=["clusters of two", "buffered"])
def test_triangles(build: Build, config: dict[str, object]) -> None:
    unit = build("gemm", **config)
    lhs, rhs = _factors(config, 390, 290, 20)
    exact = lhs @ rhs
    for part, cut in ((1, torch.triu), (2, torch.tril)):
        for diagonal in (0, -130, 129, -400):
            unit.run("keep", part, ctypes.c_int64(diagonal))
            out = _multiply(unit, lhs, rhs)
            assert not out.isnan().any()  # what is not kept is written, too
            assert torch.allclose(cut(out, diagonal), cut(exact, diagonal), rtol=1e-5, atol=1e-5)
    unit.run("keep", 0, ctypes.c_int64(0))
    assert unit.session.findings == ()


@pytest.mark.parametrize("config", [_SPLIT, _INSIDE], ids=["split", "inside"])
def test_factors_that_no_pairs_carry(build: Build, config: dict[str, object]) -> None:
    unit = build("gemm", **config)
    lhs, rhs = _factors(config, 70, 40, 92)
    lhs[3, 5], lhs[60, 0] = float("inf"), 1e30
    out = _multiply(unit, lhs, rhs)
    assert unit.session.findings == ()
    assert out[3].isinf().all()
    assert torch.allclose(out[4:], lhs[4:] @ rhs, rtol=1e-4, atol=1e-4)


def test_what_is_split_for_many_tiles_is_looked_at_once(build: Build) -> None:
    """30 small elements are few enough, 90 would not be; the sums are those of planes in memory."""
    inside, before = build("gemm", **_INSIDE), build("gemm", **_SPLIT)
    lhs, rhs = _factors(_INSIDE, 40, 300, 212)
    for row in range(30):
        lhs[row, 7 * row] = 2.0**-26
    assert torch.equal(_multiply(inside, lhs, rhs), _multiply(before, lhs, rhs))
    assert inside.session.findings == before.session.findings == ()


def test_idle_warps_split_what_a_second_launch_reads(build: Build) -> None:
    """The last columns lie in its part."""
    lhs, rhs = _factors(_AHEAD, 300, 660, 140)
    ahead, before = build("gemm", **_AHEAD), build("gemm", **_SPLIT | {"RHS_OF_TEST": "K"})
    launches = ahead.session.launches
    out = _multiply(ahead, lhs, rhs)
    assert ahead.session.launches - launches == 3  # what is split before, and two products
    assert torch.equal(out, _multiply(before, lhs, rhs))
    rhs[7, 655] = float("inf")
    out = _multiply(ahead, lhs, rhs)
    assert out[:, 655].isinf().all()
    assert torch.allclose(out[:, :655], lhs @ rhs[:, :655], rtol=1e-4, atol=1e-4)
    assert ahead.session.findings == before.session.findings == ()


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_order_changes_nothing(build: Build, seed: int) -> None:
    torch.manual_seed(0)
    unit = build("gemm", order_seed=seed, **_SPLIT)
    lhs, rhs = _factors(_SPLIT, 130, 200, 350)
    out = _multiply(unit, lhs, rhs)
    assert unit.session.findings == ()
    again = build("gemm", **_SPLIT)
    assert torch.equal(_multiply(again, lhs, rhs), out)
