"""What is taken for a remembered result, and what is only equal."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from kernelwright.verify.fingerprint import tells_apart
from kernelwright.verify.observation import RunFacts
from kernelwright.worker.roles.candidate import Keepsakes
from kernelwright.worker.roles.subject import Call, describe

HERE = torch.device("cpu")
NAN = math.nan


def call(argument: Tensor, **results: Tensor) -> Call:
    """A call that gave `results` for one argument."""
    facts = RunFacts(
        structure="T",
        outputs=describe(results, HERE),
        inputs=describe({"input[0]": argument}, HERE),
        changed=(),
        aliases=(),
        seconds=0.1,
    )
    return Call(facts=facts, effects=results)


def replayed(results: Mapping[str, Tensor]) -> tuple[str, ...]:
    """What counts as remembered when the same comes out for two inputs."""
    keepsakes = Keepsakes()
    assert keepsakes.replayed(call(torch.zeros(3), **results)) == ()
    return keepsakes.replayed(call(torch.ones(3), **results))


def test_numbers_that_come_again_for_other_inputs_are_remembered() -> None:
    assert replayed({"output": torch.rand(4, 4)}) == ("output",)
    numbers = torch.tensor([NAN, 1.0, 2.0])
    assert replayed({"one": numbers, "other": torch.ones(5)}) == ("one",)


@pytest.mark.parametrize(
    "result",
    [
        torch.full((8,), NAN),
        torch.tensor([NAN, math.inf, -math.inf, NAN]),
        torch.tensor([NAN, math.inf, 3.0]),
        torch.zeros(4, 4),
        torch.tensor(0.25),
        torch.empty(0),
        torch.zeros(7, dtype=torch.int64),
        torch.ones(3, dtype=torch.bool),
        torch.full((3,), complex(1, 1)),
    ],
)
def test_equal_bits_of_what_is_no_number_or_does_not_vary_prove_nothing(result: Tensor) -> None:
    assert not tells_apart(result)
    assert replayed({"output": result}) == ()


@pytest.mark.parametrize(
    "result",
    [
        torch.tensor([1, 2]),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, 3j]),
        torch.rand(6, 4, dtype=torch.float16)[:, ::2],
        torch.tensor([NAN, 1.0, math.inf, 2.0]),
    ],
)
def test_what_varies_tells_inputs_apart(result: Tensor) -> None:
    assert tells_apart(result)


def test_the_same_for_the_same_inputs_is_computed() -> None:
    keepsakes, result = Keepsakes(), torch.rand(4)
    keepsakes.replayed(call(torch.zeros(3), output=result))
    assert keepsakes.replayed(call(torch.zeros(3), output=result)) == ()
