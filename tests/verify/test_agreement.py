"""How far a timed result may be from the reference's."""

import torch

from kernelwright.verify.agreement import Agreement
from kernelwright.verify.compare import compare
from kernelwright.verify.distributions import Distribution

OWN, NORMAL = Distribution.OWN, Distribution.NORMAL


def learned(noise: float) -> Agreement:
    """What is known after one case in which both were off by so much."""
    torch.manual_seed(0)
    oracle = torch.randn(1000, dtype=torch.float64)
    reference, candidate = (
        (oracle + noise * torch.randn(1000, dtype=torch.float64)).float() for _ in range(2)
    )
    agreement = Agreement()
    agreement.learn(OWN, [compare("output", candidate, reference, oracle)])
    return agreement


def test_as_near_as_when_verified_is_right() -> None:
    agreement = learned(1e-5)
    reference = torch.randn(1000)
    for noise, right in ((1e-5, True), (2e-5, True), (2e-4, False), (1e-2, False)):
        metrics = compare("output", reference + noise * torch.randn(1000), reference, None)
        assert (agreement.objection(OWN, metrics) == "") is right


def test_one_element_is_enough() -> None:
    reference = torch.randn(100_000)
    other = reference.clone()
    other[77] += 0.01
    objection = learned(1e-5).objection(OWN, compare("output", other, reference, None))
    assert "output[77] is" in objection


def test_results_that_were_the_same_to_the_last_bit_stay_so() -> None:
    reference = torch.randn(1000)
    agreement = learned(0.0)
    assert agreement.objection(NORMAL, compare("output", reference, reference, None)) == ""
    stale = compare("output", reference.half().float(), reference, None)
    assert agreement.objection(NORMAL, stale)


def test_not_a_number_and_integers() -> None:
    reference = torch.arange(10.0)
    other = reference.clone()
    other[3] = float("nan")
    assert "1 of 10" in learned(1e-5).objection(OWN, compare("output", other, reference, None))
    left, right = torch.arange(10), torch.arange(10).flip(0)
    assert "10 of 10" in learned(1e-5).objection(OWN, compare("output", left, right, None))
    assert learned(1e-5).objection(OWN, compare("output", left, left, None)) == ""
