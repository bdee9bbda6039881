"""The inequalities of docs/precision.md, on a model of the scheme in numpy."""

import numpy as np
from numpy.typing import NDArray

from kernelwright import kernels

_Floats = NDArray[np.float32]
_Exact = NDArray[np.float64]

_UNIT = 2.0**-24
_LARGEST = 65504.0
"""Of fp16."""
_SMALL = 2.0**-13
"""Scaled elements below have no relative bound."""
_STEP = 16
"""Of K: one instruction's."""
_PLACES = 25
"""Binary places that a tensor core keeps below the largest exponent."""


def _split(scaled: _Floats) -> tuple[_Floats, _Floats]:
    """The two fp16 numbers of each scaled element, as gemm_guard.cuh makes them."""
    high = scaled.astype(np.float16).astype(np.float32)
    low = ((scaled - high) * np.float32(2**11)).astype(np.float16).astype(np.float32)
    return high, low


def _numbers(exponents: NDArray[np.int64], rng: np.random.Generator) -> _Floats:
    """fp32 numbers of random signs and 24-bit significands; subnormal below 2^-126."""
    significands = rng.integers(2**23, 2**24, exponents.shape) * rng.choice(
        [-1, 1], exponents.shape
    )
    exact: _Exact = np.ldexp(significands.astype(np.float64), exponents - 23)
    return exact.astype(np.float32)


def _exponent(terms: _Exact | _Floats) -> NDArray[np.int64]:
    """Of each number as 2^e times at least 1; far below all others for zero."""
    return np.where(terms == 0, -4096, np.frexp(terms)[1] - 1)


def _instruction(sums: _Exact, lhs: _Floats, rhs: _Floats) -> _Exact:
    """What a tensor core adds to `sums`, (M, N), for factors (M, 16) and (16, N).

    A subnormal fp16 factor counts with the exponent -14.
    """
    factors = [np.where(x == 0, -4096, np.maximum(_exponent(x), -14)) for x in (lhs, rhs)]
    terms = np.concatenate(
        [sums[None], lhs.T[:, :, None].astype(np.float64) * rhs[:, None, :].astype(np.float64)]
    )
    exponents = factors[0].T[:, :, None] + factors[1][:, None, :]
    largest = np.maximum(_exponent(sums), exponents.max(axis=0))
    aligned = np.trunc(np.ldexp(terms, _PLACES - np.maximum(largest, -900)))
    total = np.ldexp(aligned.sum(axis=0), np.maximum(largest, -900) - _PLACES)
    last = _exponent(total) - 23
    last = np.maximum(last, -900)
    truncated: _Exact = np.ldexp(np.trunc(np.ldexp(total, -last)), last)
    return truncated


def _product(lhs: _Floats, rhs: _Floats) -> _Floats:
    """The product of scaled factors as gemm_sm90_products.cuh computes it."""
    (lhs_high, lhs_low), (rhs_high, rhs_low) = _split(lhs), _split(rhs)
    nothing = np.zeros((lhs.shape[0], rhs.shape[1]))
    sums, low = nothing.astype(np.float32), nothing
    for window in range(0, lhs.shape[1], 2 * _STEP):
        high = nothing
        for k in range(window, window + 2 * _STEP, _STEP):
            step = slice(k, k + _STEP)
            high = _instruction(high, lhs_high[:, step], rhs_high[step])
            low = _instruction(low, lhs_low[:, step], rhs_high[step])
            low = _instruction(low, lhs_high[:, step], rhs_low[step])
        sums += high.astype(np.float32)
    return (sums.astype(np.float64) + low * 2.0**-11).astype(np.float32)


def test_the_model_has_the_constants_of_the_kernels() -> None:
    guard, tile = kernels.source("gemm_guard.cuh"), kernels.source("gemm_sm90_tile.cuh")
    assert "LOW_BITS = 11;" in guard and "SAMPLED_EXPONENT = 10;" in guard
    assert "SMALL = 1.0f / (1 << 13);" in guard
    assert "ROW_BYTES = 128;" in tile and "BLOCK_K = ROW_BYTES / sizeof(Element);" in tile
    assert "STEP_K = 32 / sizeof(Element);" in tile and "FOLD_STEPS = 128;" in tile


def test_pairs_carry_what_the_bound_says() -> None:
    rng = np.random.default_rng(0)
    # Near the largest, through subnormal low and high parts, to subnormal fp32.
    scaled = _numbers(rng.integers(-149, 16, 200_000), rng)
    scaled = scaled[np.abs(scaled) <= _LARGEST]
    high, low = _split(scaled)
    exact = scaled.astype(np.float64)
    error = np.abs(exact - (high.astype(np.float64) + low.astype(np.float64) * 2.0**-11))
    large = np.abs(exact) >= _SMALL
    assert np.all(error[large] <= 2.0**-23 * np.abs(exact[large]))
    assert np.all(error[~large] <= 2.0**-36)
    assert np.all(np.abs(low[large]) <= np.abs(scaled[large]))
    assert np.all(np.maximum(np.abs(low), 2.0**-14)[large] <= np.abs(scaled[large]))


def test_a_quarter_of_the_numbers_lose_their_last_bit() -> None:
    rng = np.random.default_rng(1)
    scaled = _numbers(rng.integers(-2, 12, 100_000), rng)
    high, low = _split(scaled)
    error = np.abs(scaled.astype(np.float64) - high.astype(np.float64) - low * 2.0**-11)
    assert set(np.unique(error / np.spacing(np.abs(scaled)))) == {0.0, 1.0}
    assert abs(np.count_nonzero(error) / error.size - 0.25) < 0.01


def test_integers_are_exact_where_one_factor_has_11_bits() -> None:
    rng = np.random.default_rng(2)
    lhs = rng.integers(-(2**12), 2**12, (24, 64)).astype(np.float32)
    rhs = rng.integers(-(2**4), 2**4, (64, 24)).astype(np.float32)
    rhs[:, 0] = 0
    rhs[7, 0] = 2**11 - 1
    exact = lhs.astype(np.float64) @ rhs.astype(np.float64)
    assert np.array_equal(_product(lhs, rhs).astype(np.float64), exact)


def test_products_stay_within_the_bound() -> None:
    rng = np.random.default_rng(3)
    shape, k = (16, 64), 64
    bound = 38 + 1.01 * (k / 32 + 1)
    cases: dict[str, tuple[_Exact | _Floats, _Exact | _Floats]] = {
        "alike": (rng.uniform(1, 2, shape), rng.uniform(1, 2, shape)),
        "normal": (rng.normal(size=shape), rng.normal(size=shape)),
        "from small to large": (
            _numbers(rng.integers(-13, 15, shape), rng),
            _numbers(rng.integers(-13, 15, shape), rng),
        ),
        # One large term, and many that its truncation takes away.
        "one large": (
            np.where(np.arange(k) % 16 == 0, 4096.0, rng.uniform(1, 2, shape)),
            np.where(np.arange(k) % 16 == 0, 4096.0, rng.uniform(0.5, 1, shape)),
        ),
    }
    for name, (left, right) in cases.items():
        lhs, rhs = left.astype(np.float32), right.astype(np.float32).T
        exact = lhs.astype(np.float64) @ rhs.astype(np.float64)
        scale = np.abs(lhs).astype(np.float64) @ np.abs(rhs).astype(np.float64)
        error = np.abs(_product(lhs, rhs) - exact) / scale
        assert error.max() <= bound * _UNIT, name
        assert error.max() > 0, name


def test_without_promotion_truncation_would_exceed_the_bound() -> None:
    rng = np.random.default_rng(4)
    lhs = rng.uniform(1, 2, (4, 8192)).astype(np.float32)
    rhs = rng.uniform(1, 2, (8192, 4)).astype(np.float32)
    chain = np.zeros((4, 4))
    for k in range(0, 8192, _STEP):
        chain = _instruction(chain, _split(lhs)[0][:, k : k + _STEP], _split(rhs)[0][k : k + _STEP])
    exact = _split(lhs)[0].astype(np.float64) @ _split(rhs)[0].astype(np.float64)
    assert ((exact - chain) / exact).min() > 298 * _UNIT
    assert (np.abs(_product(lhs, rhs) - lhs.astype(np.float64) @ rhs) / exact).max() < 298 * _UNIT
