"""Oracle, comparison and tolerance: what is accepted as no less accurate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelwright.verify.compare import Small, compare, compare_together
from kernelwright.verify.oracle import run_oracle
from kernelwright.verify.tolerance import (
    CPU_STAND_IN,
    NO_LESS_ACCURATE,
    Oracle,
    rule,
)


def accepted(
    candidate: Tensor, reference: Tensor, oracle: Tensor | None, stand_in: bool = False
) -> bool:
    tolerance = CPU_STAND_IN if stand_in else NO_LESS_ACCURATE
    return rule(compare("output", candidate, reference, oracle), tolerance).accepted


@pytest.fixture
def product() -> tuple[Tensor, Tensor, Tensor]:
    """Operands and their float32 product, of numbers of one sign, where sums lose most."""
    torch.manual_seed(0)
    left, right = torch.rand(64, 2048), torch.rand(2048, 48)
    return left, right, left @ right


def test_another_order_of_summation_is_accepted(product: tuple[Tensor, ...]) -> None:
    left, right, reference = product
    oracle = left.double() @ right.double()
    halves = left[:, :1024] @ right[:1024] + left[:, 1024:] @ right[1024:]
    assert not torch.equal(halves, reference)
    assert accepted(halves, reference, oracle)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("stand_in", [True, False])
def test_a_product_of_rounded_operands_is_refused(
    product: tuple[Tensor, ...], dtype: torch.dtype, stand_in: bool
) -> None:
    left, right, reference = product
    oracle = left.double() @ right.double()
    rounded = (left.to(dtype).double() @ right.to(dtype).double()).float()
    assert not accepted(rounded, reference, oracle, stand_in)


def test_tf32_operands_are_refused(product: tuple[Tensor, ...]) -> None:
    left, right, reference = product
    mask = torch.tensor(-(1 << 13), dtype=torch.int32)
    cut = [(part.view(torch.int32) & mask).view(torch.float32).double() for part in (left, right)]
    oracle = left.double() @ right.double()
    assert not accepted((cut[0] @ cut[1]).float(), reference, oracle, stand_in=True)


def test_a_plain_sum_is_accepted_and_tf32_is_not() -> None:
    torch.manual_seed(3)
    terms = 1024
    for sign in (0.0, 0.5):  # numbers of one sign, and of zero mean
        left, right = torch.rand(48, terms) - sign, torch.rand(terms, 48) - sign
        oracle = left.double() @ right.double()
        reference = (left.view(48, 64, 16).transpose(0, 1) @ right.view(64, 16, 48)).double()
        better = reference.sum(dim=0).float()
        plain = torch.zeros(48, 48)
        for k in range(terms):
            plain += left[:, k, None] * right[k]
        metrics = replace(compare("y", plain, better, oracle), terms=float(terms))
        assert rule(metrics, NO_LESS_ACCURATE).accepted
    # Of zero mean: here short operands show, however many terms there are.
    short = left.bfloat16().double() @ right.bfloat16().double()
    mask = torch.tensor(-(1 << 13), dtype=torch.int32)
    cut = [(part.view(torch.int32) & mask).view(torch.float32).double() for part in (left, right)]
    for wrong in (short.float(), (cut[0] @ cut[1]).float()):
        metrics = replace(compare("y", wrong, better, oracle), terms=float(1 << 20))
        assert not rule(metrics, NO_LESS_ACCURATE).accepted


def test_one_wrong_element_in_a_million_is_refused_and_found() -> None:
    reference = torch.rand(1000, 1000)
    candidate = reference.clone()
    candidate[123, 456] += 1e-3
    metrics = compare("output", candidate, reference, reference.double())
    ruling = rule(metrics, NO_LESS_ACCURATE)
    assert not ruling.accepted
    assert metrics.worst_index == (123, 456)
    # Too small for the mean to show: the worst element decides.
    candidate = reference.clone()
    candidate[123, 456] += 2e-5
    ruling = rule(compare("output", candidate, reference, reference.double()), NO_LESS_ACCURATE)
    assert not ruling.accepted
    assert "[123, 456]" in ruling.reason


def test_an_exact_reference_leaves_a_rounding_and_no_more() -> None:
    reference = torch.rand(4096)
    ulp = torch.nextafter(reference, torch.tensor(2.0))
    assert accepted(ulp, reference, reference.double())
    assert not accepted(reference * (1 + 1e-5), reference, reference.double())


def test_zeros_for_small_outputs_are_refused() -> None:
    reference = torch.rand(100) * 1e-6
    assert not accepted(torch.zeros(100), reference, reference.double())


def test_nothing_is_accepted_where_the_reference_is_zero() -> None:
    reference = torch.zeros(100)
    assert accepted(torch.zeros(100), reference, reference.double())
    assert not accepted(torch.full((100,), 1e-8), reference, reference.double())


def test_a_scalar_may_be_rounded_otherwise_than_a_lucky_reference() -> None:
    oracle = torch.tensor(0.1234567, dtype=torch.float64)
    reference = oracle.float()
    candidate = torch.nextafter(reference, torch.tensor(1.0))
    assert accepted(candidate, reference, oracle)
    assert not accepted(reference * 1.0001, reference, oracle)


@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
def test_special_values_stay_where_they_are(special: float) -> None:
    reference = torch.rand(8, 8)
    reference[2, 3] = special
    assert accepted(reference.clone(), reference, reference.double())
    for wrong in (0.0, float("nan") if special == special else float("inf"), -special):
        candidate = reference.clone()
        candidate[2, 3] = wrong
        if wrong == special or (wrong != wrong and special != special):
            continue
        metrics = compare("output", candidate, reference, reference.double())
        assert metrics.mismatches == 1
        assert metrics.mismatch_index == (2, 3)
        assert not rule(metrics, NO_LESS_ACCURATE).accepted
    moved = reference.clone()
    moved[0, 0] = special
    assert not accepted(moved, reference, reference.double())


def test_a_result_that_overflows_only_in_the_reference_may_be_right() -> None:
    oracle = torch.rand(50, dtype=torch.float64) * 1e4
    oracle[7] = 65519.0  # rounds to infinity one step further on
    oracle[9] = 7e4
    reference = oracle.half()
    assert reference[9].isinf() and not reference[7].isinf()
    other = reference.clone()
    other[7] = float("inf")
    assert accepted(other, reference, oracle)
    # In float16 what an intermediate result loses to infinity, another order of operations keeps.
    reference[3] = float("inf")
    assert accepted(oracle.half(), reference, oracle)
    wrong = oracle.half()
    wrong[3] *= 1.1
    assert not accepted(wrong, reference, oracle)


def test_an_infinity_that_underflow_made_nan_in_the_reference_alone_may_be_right() -> None:
    factors = torch.tensor([1e-30, 1e-30, float("inf"), 2.0])
    oracle = factors.double().cumprod(0)
    reference = torch.tensor([1e-30, 0.0, float("nan"), float("nan")])
    assert oracle[2:].isinf().all()
    assert accepted(oracle.float(), reference, oracle)
    assert not accepted(-oracle.float(), reference, oracle)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((slice(96, None), slice(None)), "in the last 96..99 of dimension 0"),
        ((slice(None), slice(48, 50)), "in the last 48..49 of dimension 1"),
        (
            (slice(96, None), slice(48, None)),
            "last 96..99 of dimension 0 and 48..49 of dimension 1",
        ),
        ((slice(5, 7), slice(None)), "200 elements are wrong, all in 5..6 of dimension 0"),
        ((slice(None), slice(None)), ""),
    ],
)
def test_the_reason_says_where_the_wrong_elements_are(place: Any, words: str) -> None:
    reference = torch.rand(100, 50) + 1
    candidate = reference.clone()
    candidate[place] *= 1.5
    ruling = rule(compare("y", candidate, reference, reference.double()), NO_LESS_ACCURATE)
    assert words.replace("200 elements", "100 of 5000 elements") in ruling.reason
    assert ("last, partly filled tile" in ruling.reason) is ("last" in words)
    assert ("elements are wrong" in ruling.reason) is bool(words)


def test_elements_beyond_2_to_31_point_to_a_short_index() -> None:
    metrics = compare("y", torch.ones(4), torch.ones(4), torch.ones(4).double())
    far = 2**31 + 5
    metrics = replace(
        metrics,
        shape=(2**32,),
        count=2**32,
        candidate_rmse=1.0,
        wrong=9,
        wrong_box=((far, far + 8),),
        first_wrong=far,
    )
    assert "an index of 32 bits overflows" in rule(metrics, NO_LESS_ACCURATE).reason


def test_integers_that_a_rounding_decides_about_may_differ() -> None:
    reference, undecided = torch.arange(10), torch.zeros(10, dtype=torch.bool)
    candidate = reference.clone()
    candidate[7] = 0
    undecided[7] = True
    metrics = compare("output", candidate, reference, None, undecided=undecided)
    assert metrics.mismatches == 0
    undecided[7], undecided[6] = False, True
    metrics = compare("output", candidate, reference, None, undecided=undecided)
    assert metrics.mismatches == 1


def test_integers_have_to_be_equal() -> None:
    reference = torch.arange(10)
    assert accepted(reference.clone(), reference, None)
    candidate = reference.clone()
    candidate[7] = 0
    metrics = compare("output", candidate, reference, None)
    assert (metrics.mismatches, metrics.mismatch_index) == (1, (7,))
    assert not rule(metrics, NO_LESS_ACCURATE).accepted
    assert not accepted(torch.tensor([True]), torch.tensor([False]), None)


def test_empty_and_complex_tensors() -> None:
    assert accepted(torch.empty(0, 4), torch.empty(0, 4), torch.empty(0, 4).double())
    reference = torch.rand(5, dtype=torch.complex64)
    assert accepted(reference.clone(), reference, reference.to(torch.complex128))
    assert not accepted(reference.conj(), reference, reference.to(torch.complex128))


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    reference, noise = torch.rand(7, 33), torch.rand(7, 33) * 1e-3
    reference[6, 30] = float("nan")
    whole = compare("output", reference + noise, reference, reference.double())
    monkeypatch.setattr("kernelwright.verify.compare._CHUNK", 10)
    pieces = compare("output", reference + noise, reference, reference.double())
    assert pieces.worst_index == whole.worst_index
    assert pieces.candidate_value == whole.candidate_value
    assert pieces.candidate_rmse == pytest.approx(whole.candidate_rmse)
    assert pieces.candidate_worst == pytest.approx(whole.candidate_worst)


HERE = torch.device("cpu")


def test_many_small_tensors_are_compared_as_each_of_them_is() -> None:
    torch.manual_seed(0)
    oracles = [torch.randn(shape, dtype=torch.float64) for shape in ((), (7,), (3, 50), (200, 30))]
    small = [
        Small(f"output[{place}]", (it * (1 + 1e-7)).to(dtype), it.to(dtype), it)
        for dtype in (torch.float32, torch.float16)
        for place, it in enumerate(oracles)
    ]
    counts = torch.arange(9)
    small.append(Small("state.count", counts.clone(), counts, counts))
    given = compare_together(small, HERE)
    assert given == [compare(it.name, it.candidate, it.reference, it.oracle) for it in small]


def test_what_is_wrong_among_many_is_left_to_be_compared_by_itself() -> None:
    x = torch.randn(40, dtype=torch.float64)
    right, wrong = x.float(), x.float()
    wrong[3] += 1.0
    holed = x.float()
    holed[5] = torch.nan
    ones = torch.ones(4, dtype=torch.int64)
    empty = torch.empty(0)
    small = [
        Small("a", wrong, right, x),
        Small("b", right, right, None),
        Small("c", ones + 1, ones, ones),
        Small("d", holed, right, x),
        Small("e", empty, empty, empty.double()),
        Small("f", right, right, x),
    ]
    *others, last = compare_together(small, HERE)
    assert others == [None] * 5
    assert last == compare("f", right, right, x)
    assert compare_together(small[:2], HERE) == [None, None]


def test_an_oracle_that_computes_something_else_is_dropped() -> None:
    reference = torch.rand(100)
    metrics = compare("output", reference.clone(), reference, torch.rand(100).double())
    assert metrics.oracle is Oracle.REFERENCE
    assert "away from its float64 run" in metrics.note
    assert rule(metrics, NO_LESS_ACCURATE).accepted
    wrong = compare("output", reference * 1.01, reference, torch.rand(100).double())
    assert not rule(wrong, NO_LESS_ACCURATE).accepted


class SpellsOutFloat32(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.scale = torch.full((64,), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.zeros(64, dtype=torch.float32)
        x = (self.linear(x).float() + mask) * self.scale
        return torch.softmax(x.half().float(), dim=-1, dtype=torch.float32)


class Normalises(nn.BatchNorm1d):
    def __init__(self) -> None:
        super().__init__(64)


@pytest.mark.parametrize("make", [SpellsOutFloat32, Normalises])
def test_the_oracle_runs_in_float64_throughout(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = make(), torch.rand(32, 64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        oracle = run_oracle(model, [x], seed=0)
        assert oracle.note == ""
        output = oracle.tensors["output"]
        assert output.dtype == torch.float64
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name]), "the oracle changed the module"
            assert tensor.dtype == before[name].dtype
        doubled = run_oracle(model.double(), [x.double()], seed=0).tensors["output"]
    # Not a single rounding to float32 on the way.
    torch.testing.assert_close(output, doubled, rtol=1e-14, atol=1e-14)


def test_the_oracle_has_the_state_after_the_call() -> None:
    model, x = Normalises(), torch.rand(32, 64)
    state = run_oracle(model, [x], seed=0).tensors
    torch.testing.assert_close(state["state.running_mean"], 0.1 * x.double().mean(0))
    assert torch.equal(model.running_mean, torch.zeros(64))  # type: ignore[arg-type]


class LooksAtBits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x


def test_a_module_that_cannot_be_raised_gives_a_note() -> None:
    run = run_oracle(LooksAtBits(), [torch.rand(3)], seed=0)
    assert run.tensors == {}
    assert run.note == "no float64 oracle: TypeError: float32 only"
