"""Input cases: the same everywhere, and what their words say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.verify.cases import (
    STRICT,
    Case,
    Demand,
    Demands,
    Layout,
    Weights,
    arrange,
    plan_cases,
    plan_large,
)
from kernelwright.verify.distributions import NOT_FINITE, Distribution
from kernelwright.verify.fingerprint import fingerprint, fingerprints

CASES = st.builds(
    Case,
    seed=st.integers(0, 99),
    distribution=st.sampled_from(Distribution),
    layout=st.sampled_from(Layout),
    weights=st.sampled_from(Weights),
    sizes=st.lists(
        st.tuples(st.sampled_from(["M", "kernel_size[1]", "seed"]), st.integers(1, 9))
    ).map(tuple),
)


@given(CASES)
@settings(deadline=None)
def test_a_case_survives_its_words(case: Case) -> None:
    assert Case.parse(str(case)) == case


@pytest.mark.parametrize("text", ["seed", "seed=x", "layout=round", "M=3", "distribution="])
def test_words_that_are_no_case(text: str) -> None:
    with pytest.raises(ValueError):
        Case.parse(text)


def test_demands_by_name() -> None:
    asked = Demands().asking(["nan=reported", "layouts=required"])
    assert asked == Demands(nan=Demand.REPORTED, layouts=Demand.REQUIRED)
    assert asked.less_than(Demands()) == ("nan=reported",)
    assert Demands().less_than(STRICT) == (
        "infinite=reported",
        "ragged_sizes=reported",
        "layouts=reported",
        "drop_in=reported",
    )
    assert Demands().asking(["drop-in"]) == Demands(drop_in=Demand.REQUIRED)


@pytest.mark.parametrize("word", ["inf=reported", "nan=maybe", ""])
def test_words_that_are_no_demand(word: str) -> None:
    with pytest.raises(ValueError):
        Demands().asking([word])


def test_the_plan_covers_what_is_asked() -> None:
    planned = plan_cases(
        seeds=5,
        demands=Demands(nan=Demand.SKIPPED),
        own_sizes=(("M", 7),),
        other_sizes=((("M", 1),), (("M", 16),)),
    )
    cases = [plan.case for plan in planned]
    assert len(set(cases)) == len(cases)
    made = [case for case in cases if case.weights is Weights.MADE]
    own = [case for case in made if case.distribution is Distribution.OWN]
    assert {case.seed for case in own} == set(range(5))
    assert sum(case.distribution is Distribution.NORMAL for case in made) == 5
    assert {case.distribution for case in cases} == set(Distribution) - {Distribution.NAN}
    assert {case.weights for case in cases} == set(Weights)
    assert not any(case.distribution is Distribution.NAN for case in cases)
    assert {case.layout for case in cases} == set(Layout)
    assert {case.sizes for case in cases} == {(("M", 7),), (("M", 1),), (("M", 16),)}
    may_refuse = {plan.case.sizes for plan in planned if plan.refusal is Demand.SKIPPED}
    assert may_refuse == {(("M", 1),), (("M", 16),)}


def test_sizes_that_divide_otherwise_are_reported_and_demanded_of_our_own_files() -> None:
    whole, odd = (("M", 64),), (("M", 7),)
    for demands, demand in ((Demands(), Demand.REPORTED), (STRICT, Demand.REQUIRED)):
        planned = plan_cases(
            seeds=1, demands=demands, own_sizes=(), other_sizes=(whole, odd), ragged=(odd,)
        )
        asked = {plan.case.sizes: plan.demand for plan in planned if plan.case.sizes}
        assert asked == {whole: Demand.REQUIRED, odd: demand}


def test_a_large_problem_is_run_at_full_size_on_few_inputs_and_on_all_at_reduced_ones() -> None:
    small, odd = (("M", 64),), (("M", 7),)
    planned = plan_large(seeds=5, demands=Demands(), other_sizes=(small, odd))
    full = [plan.case for plan in planned if not plan.case.sizes]
    assert [case.distribution for case in full] == 2 * [Distribution.OWN] + [Distribution.NORMAL]
    reduced = [plan for plan in planned if plan.case.sizes == small]
    assert {plan.case.distribution for plan in reduced} == set(Distribution)
    # A file for one size only has to be asked at that size, on everything but further seeds.
    assert all(plan.refusal is Demand.SKIPPED for plan in reduced)
    instead = [plan.instead for plan in reduced if plan.instead is not None]
    assert not any(case.sizes for case in instead)
    assert not {str(case) for case in instead} & {str(Case(seed=seed)) for seed in range(5)}
    plain = {Distribution.OWN, Distribution.NORMAL}
    assert {case.distribution for case in instead} >= set(Distribution) - plain
    assert {case.layout for case in instead} == set(Layout)
    assert {case.weights for case in instead} == set(Weights)
    assert len(instead) == len(reduced) - 10
    assert [plan.instead for plan in planned if plan.case.sizes == odd] == [None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_normal_inputs_are_zero_mean_in_place_and_repeatable(dtype: torch.dtype) -> None:
    case = Case(seed=3, distribution=Distribution.NORMAL)
    made = [torch.rand(100, 200).T.to(dtype), torch.arange(5), 2.5, [torch.rand(50)]]
    again = [torch.rand(100, 200).T.to(dtype), torch.arange(5), 2.5, [torch.rand(50)]]
    tensor = made[0]
    arranged = arrange(made, case)
    assert arranged[0] is tensor
    assert isinstance(tensor, torch.Tensor)
    assert tensor.stride() == (1, 200)
    assert abs(tensor.double().mean().item()) < 0.05
    assert abs(tensor.double().std().item() - 1) < 0.05
    assert torch.equal(arranged[1], torch.arange(5))  # type: ignore[arg-type]
    assert arranged[2] == 2.5
    second = arrange(again, case)
    assert torch.equal(second[0], tensor)  # type: ignore[arg-type]
    assert torch.equal(second[3][0], arranged[3][0])  # type: ignore[index]
    other = arrange([torch.rand(200, 100).to(dtype)], Case(distribution=Distribution.NORMAL))
    assert not torch.equal(other[0], tensor)  # type: ignore[arg-type]


DRAWN = [kind for kind in Distribution if kind not in (Distribution.OWN, *NOT_FINITE)]


def drawn(tensor: torch.Tensor, kind: Distribution, seed: int = 1) -> torch.Tensor:
    (result,) = arrange([tensor], Case(seed=seed, distribution=kind))
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("kind", DRAWN)
def test_a_distribution_keeps_what_the_problem_promises(kind: Distribution) -> None:
    torch.manual_seed(0)
    triangle = drawn(torch.rand(20, 20).tril(), kind)
    assert not triangle.triu(1).any() and triangle.tril().count_nonzero() > 100
    signs = torch.randint(0, 2, (50,)) * 2.0 - 1
    assert torch.equal(drawn(signs.clone(), kind), signs)
    half = torch.rand(3, 9, 9)
    symmetric = drawn(half + half.mT, kind)
    assert torch.equal(symmetric, symmetric.mT)
    chances = drawn(torch.rand(5, 30).softmax(dim=-1), kind)
    assert torch.allclose(chances.sum(dim=-1), torch.ones(5))
    # Nothing is promised of these: constants and positive numbers are replaced.
    assert (drawn(torch.ones(30), kind) != 1).any()
    assert (drawn(torch.rand(30, 30), kind) < 0).any()


def test_what_the_distributions_are() -> None:
    spread = {kind: drawn(torch.rand(100, 100), kind).double() for kind in DRAWN}
    assert abs(spread[Distribution.SMALL].std() / 1e-3 - 1) < 0.05
    assert abs(spread[Distribution.LARGE].std() / 64 - 1) < 0.05
    heavy = spread[Distribution.HEAVY]
    assert heavy.abs().max() > 10 * heavy.std()
    whole = spread[Distribution.INTEGERS]
    assert torch.equal(whole, whole.round()) and whole.unique().numel() == 9
    sums = spread[Distribution.CANCELLING].sum(dim=1)
    assert 0 < sums.abs().max() < 0.1


def test_expanded_inputs_can_be_refilled() -> None:
    tensor = torch.rand(1, 8).expand(4, 8)
    (arranged,) = arrange([tensor], Case(distribution=Distribution.NORMAL))
    assert isinstance(arranged, torch.Tensor)
    assert arranged.stride() == (0, 1)
    assert (arranged < 0).any()


def test_nonfinite_inputs_have_one_of_each_kind() -> None:
    tensor = torch.rand(30, 30)
    arrange([tensor], Case(distribution=Distribution.NAN))
    assert tensor.isnan().sum() == 1 and tensor.isinf().sum() == 0
    tensor = torch.rand(30, 30)
    arrange([tensor], Case(distribution=Distribution.INFINITE))
    assert tensor.isposinf().sum() == 1 and tensor.isnan().sum() == 0
    assert tensor.isneginf().sum() == 1


def test_layouts_keep_the_values() -> None:
    tensor = torch.rand(5, 6)
    (strided,) = arrange([tensor], Case(layout=Layout.STRIDED))
    (misaligned,) = arrange([tensor], Case(layout=Layout.MISALIGNED))
    assert isinstance(strided, torch.Tensor) and isinstance(misaligned, torch.Tensor)
    assert torch.equal(strided, tensor) and torch.equal(misaligned, tensor)
    assert not strided.is_contiguous()
    assert misaligned.is_contiguous()
    assert misaligned.data_ptr() % 16 != 0


@given(st.integers(0, 40), st.sampled_from([torch.float32, torch.uint8, torch.float16]))
@settings(deadline=None)
def test_a_fingerprint_sees_values_and_not_their_layout(size: int, dtype: torch.dtype) -> None:
    tensor = torch.arange(size).to(dtype)
    spread = torch.zeros(size * 2 + 1, dtype=dtype)[1::2]
    spread.copy_(tensor)
    assert fingerprint(spread) == fingerprint(tensor)
    for place in range(size):
        changed = tensor.clone()
        changed[place] += 1
        assert fingerprint(changed) != fingerprint(tensor)


def test_not_too_many_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.full((size,), 1.5) for size in (30, 10, 500_000, 30, 0, 40, 1)]
    marks = [fingerprint(tensor) for tensor in tensors]
    monkeypatch.setattr("kernelwright.verify.fingerprint._TOGETHER", 200)
    assert fingerprints(tensors) == marks


LARGE = torch.ones(300_000)
MARK_OF_LARGE = fingerprint(LARGE)


@given(st.lists(st.integers(0, 40), max_size=6), st.sampled_from([torch.float32, torch.uint8]))
@settings(deadline=None, max_examples=40)
def test_fingerprints_of_many_are_those_of_each(sizes: list[int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(len(sizes))
    tensors = [torch.randint(200, (size,), generator=generator).to(dtype) for size in sizes]
    marks = [fingerprint(tensor) for tensor in tensors]
    assert fingerprints([*tensors, LARGE]) == [*marks, MARK_OF_LARGE]


@pytest.mark.parametrize("small", [15, 1 << 20])
def test_a_fingerprint_sees_order_shape_dtype_and_far_chunks(
    monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("kernelwright.verify.fingerprint._SMALL", small)
    monkeypatch.setattr("kernelwright.verify.fingerprint._CHUNK_WORDS", 4)
    tensor = torch.rand(64)
    variants = [
        tensor,
        tensor.flip(0),
        tensor.roll(2),
        tensor.roll(8),
        tensor.reshape(8, 8),
        tensor.view(torch.int32),
        tensor[:63],
    ]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)
