"""Wrong answers made of the reference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.verify.mutants import Mutant, MutantKind, mutants_of, run_mutant
from kernelwright.worker.roles.weights import load_other


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x) * y


def run(kind: MutantKind, place: str = "") -> tuple[Tensor, Tensor]:
    """What the reference and a mutant of it give."""
    torch.manual_seed(0)
    module, arguments = Scaled(), [torch.rand(4, 8), torch.rand(4, 8)]
    state = [tensor.clone() for tensor in module.state_dict().values()]
    before = [tensor.clone() for tensor in arguments]
    with torch.no_grad():
        expected = {"output": module(*arguments)}
    others = [torch.rand(4, 8), torch.rand(4, 8)]
    mutant = Mutant(kind=kind, place=place)
    given = run_mutant(mutant, module, arguments, others, expected, load_other)
    assert all(map(torch.equal, arguments, before))
    assert all(map(torch.equal, module.state_dict().values(), state))
    return expected["output"], given["output"]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (MutantKind.FLOAT16, 1e-5, 1e-3),
        (MutantKind.BFLOAT16, 1e-4, 1e-2),
        (MutantKind.TF32, 1e-5, 1e-3),
        (MutantKind.WEIGHTS, 1e-2, 10.0),
        (MutantKind.ZEROS, 1.0, 1.0),
        (MutantKind.CONSTANT, 0.1, 10.0),
    ],
)
def test_a_mutant_is_about_as_wrong_as_its_name_says(
    kind: MutantKind, least: float, most: float
) -> None:
    expected, given = run(kind)
    error = float((given - expected).norm() / expected.norm())
    assert least <= error <= most


def test_an_input_is_ignored_by_taking_another() -> None:
    expected, first = run(MutantKind.INPUT, "input[0]")
    _, second = run(MutantKind.INPUT, "input[1]")
    assert not torch.allclose(first, expected) and not torch.allclose(second, expected)
    assert not torch.allclose(first, second)


def test_tf32_keeps_ten_bits_of_the_mantissa() -> None:
    seen: list[Tensor] = []
    module = Recorder(seen.append)
    x = torch.tensor([1 + 2.0**-10, 1 + 2.0**-12, 1 + 2.0**-11 + 2.0**-23, float("inf")])
    run_mutant(Mutant(kind=MutantKind.TF32), module, [x], [x], {}, load_other)
    assert seen[0].tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-10, float("inf")]


class Recorder(nn.Module):
    def __init__(self, record: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.record = record

    def forward(self, x: Tensor) -> Tensor:
        self.record(x)
        return x


def test_only_mutants_that_differ_are_tried() -> None:
    whole = {str(it) for it in mutants_of(Scaled(), [torch.rand(4), torch.rand(4)])}
    assert {"a module with other weights", "one that ignores input[1]"} < whole
    short = {str(it) for it in mutants_of(nn.ReLU(), [torch.rand(4).half()])}
    assert short == {"zeros", "a constant", "one that ignores input[0]"}
    x = torch.rand(4)
    ignoring = Mutant(kind=MutantKind.INPUT, place="input[0]")
    # The same input once more is no other answer.
    assert run_mutant(ignoring, nn.ReLU(), [x], [x.clone()], {}, load_other) == {}
