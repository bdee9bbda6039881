"""Bounds of errors are never below what is measured, and near enough to decide."""

import pytest
import torch
from torch import Tensor

from kernelwright.verify import bounds
from kernelwright.verify.bounds import Expected
from kernelwright.verify.compare import compare

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64)


def random(dtype: torch.dtype, spread: float) -> Tensor:
    torch.manual_seed(3)
    numbers = torch.randn(40, 25, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    return (numbers * torch.exp(spread * torch.randn(40, 25))).to(dtype)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_CHUNK", 300)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("relative", [0.0, 1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("spread", [0.0, 2.0])
@pytest.mark.parametrize("transposed", [False, True])
def test_no_error_is_larger_than_its_bound(
    dtype: torch.dtype, relative: float, spread: float, transposed: bool
) -> None:
    expected = random(dtype, spread)
    found = (expected * (1 + relative * torch.randn(40, 25))).to(dtype)
    if transposed:
        expected, found = expected.T, found.T
    exact, bound = (
        compare("output", found, expected, None),
        Expected("output", expected).bound(found),
    )
    assert bound is not None
    assert (bound.count, bound.shape, bound.epsilon, bound.dtype) == (
        exact.count,
        exact.shape,
        exact.epsilon,
        exact.dtype,
    )
    assert exact.rms * 0.99 < bound.rms <= exact.rms
    assert exact.candidate_rmse <= bound.candidate_rmse <= exact.candidate_rmse * 1.02 + 2e-19
    assert (
        exact.candidate_worst
        <= bound.candidate_worst
        <= exact.candidate_worst * 1.02 + (9 * exact.epsilon)
    )


def test_a_single_wrong_element_is_seen_in_the_last_chunk() -> None:
    expected = random(torch.float32, 0.0)
    found = expected.clone()
    found[-1, -1] += 0.1
    bound = Expected("output", expected).bound(found)
    assert bound is not None
    assert bound.candidate_worst > 0.09 / (bound.rms + expected[-1, -1].abs().item())


def test_tiny_numbers_do_not_vanish() -> None:
    expected = torch.zeros(1000)
    expected[0] = 1.0
    found = expected + 1e-22
    bound = Expected("output", expected).bound(found)
    assert bound is not None
    exact = compare("output", found, expected, None)
    assert 0.0 < exact.candidate_rmse <= bound.candidate_rmse
    assert exact.candidate_worst <= bound.candidate_worst


def spoiled(value: float) -> Tensor:
    tensor = random(torch.float32, 0.0)
    tensor[7, 7] = value
    return tensor


CLEAN = random(torch.float32, 0.0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (spoiled(torch.nan), CLEAN),
        (CLEAN, spoiled(torch.nan)),
        (spoiled(torch.inf), spoiled(torch.inf)),
        (spoiled(-torch.inf), CLEAN),
        (spoiled(1e30), CLEAN),
        (CLEAN, torch.zeros(40, 25)),
        (CLEAN.T.contiguous().T, CLEAN),
        (CLEAN[:1].expand(40, 25), CLEAN[:1].expand(40, 25)),
        (CLEAN[:, ::5], CLEAN[:, ::5]),
        (torch.arange(5), torch.arange(5).flip(0)),
    ],
)
def test_what_bounds_do_not_tell_is_left_to_comparing(found: Tensor, expected: Tensor) -> None:
    assert Expected("output", expected).bound(found) is None


@pytest.mark.parametrize(
    "tensor", [torch.arange(1000), torch.tensor([True, False]), torch.empty(0, 3), torch.zeros(7)]
)
def test_the_same_is_the_same(tensor: Tensor) -> None:
    bound = Expected("output", tensor).bound(tensor.clone())
    assert bound is not None
    assert (bound.mismatches, bound.candidate_worst, bound.count) == (0, 0.0, tensor.numel())
    assert bound.candidate_rmse == 0.0
