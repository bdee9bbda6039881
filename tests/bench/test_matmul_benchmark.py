"""benchmarks/matmul.py, as far as it runs without a GPU: its cases, its rule, its files."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from matmul_parts import cases
from matmul_parts.accuracy import UNIT, compare
from matmul_parts.building import Naming, emit, write_problems
from matmul_parts.distributions import ALL

from kernelwright.problem import execute, load_problem
from kernelwright.schedule import Library


def every_case() -> list[cases.Case]:
    return [
        *cases.acceptance(),
        *cases.representative(),
        *cases.half(),
        *cases.random_shapes(8),
    ]


def test_every_case_makes_factors_of_its_sizes(tmp_path):
    found = every_case()
    problems = write_problems([(case.name, case.source) for case in found], tmp_path)
    for index, case in enumerate(found):
        definition = execute(load_problem(problems[case.name]), f"case_{index}")
        args, kwargs = definition.make_init_inputs()
        with torch.device("meta"):
            inputs = definition.make_inputs()
            module = definition.build(args, kwargs)
        lhs, rhs = case.factors(module, list(inputs))
        assert lhs.shape[-1] == rhs.shape[-2] == case.k, case.name
        assert lhs.shape[:-1].numel() == case.batch * case.m, case.name
        assert rhs.shape[-1] == case.n, case.name


def test_random_shapes_do_not_depend_on_their_number():
    assert list(cases.random_shapes(9))[:5] == list(cases.random_shapes(5))
    sizes = [size for it in cases.random_shapes(200) for size in (it.m, it.k, it.n)]
    assert min(sizes) <= 2
    assert 12000 < max(sizes) <= 16384


@pytest.mark.parametrize("name", ALL)
def test_every_distribution_fills_transposed_and_odd_factors(name):
    torch.manual_seed(0)
    lhs, rhs = torch.full((9, 7), 5.5).mT, torch.full((9, 5), 5.5)
    ALL[name](lhs, rhs)
    assert not (lhs == 5.5).all()
    assert not (rhs == 5.5).all()


class Product(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


class Shifted(Product):
    """A product of which every element is too large by a share of |A| |B|."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        exact, bound = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        return (exact + self.share * bound).float()


class Unsteady(Product):
    calls = 0

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.calls += 1
        return torch.nextafter(a @ b, torch.tensor(0.0)) if self.calls == 7 else a @ b


class WithoutInfinities(Product):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).nan_to_num()


@pytest.fixture
def factors() -> list[Tensor]:
    torch.manual_seed(1)
    lhs, rhs = torch.empty(40, 300), torch.empty(300, 30)
    ALL["uniform"](lhs, rhs)
    return [lhs, rhs]


def test_the_rule_keeps_what_is_no_worse(factors):
    assert compare(Product(), Product(), factors).broken == ()
    assert compare(Product(), Shifted(UNIT), factors).broken == ()


@pytest.mark.parametrize(
    ("share", "broken"),
    [(20.0, ("max", "rms", "mean")), (-20.0, ("max", "rms", "mean"))],
)
def test_the_rule_finds_errors_of_either_sign(factors, share, broken):
    found = compare(Product(), Shifted(share * UNIT), factors)
    assert found.broken == broken
    assert found.ours.mean == pytest.approx(share * UNIT, rel=0.05)
    assert found.ours.rms == pytest.approx(abs(found.ours.mean), rel=0.05)


def test_the_rule_finds_a_run_that_differs(factors):
    assert compare(Product(), Unsteady(), factors).broken == ("determinism",)


@pytest.mark.parametrize("name", ["infinities", "NaN", "infinity times zero", "overflow"])
def test_the_rule_finds_what_is_finite_and_should_not_be(factors, name):
    ALL[name](*factors)
    found = compare(Product(), WithoutInfinities(), factors)
    assert "placement" in found.broken
    assert found.ours.misplaced == found.nonfinite > 0
    assert found.library.misplaced == 0
    assert compare(Product(), Product(), factors).broken == ()


def test_files_that_differ_in_sizes_alone_share_a_library(tmp_path):
    wanted = [cases.product(4003, 503, 4003), cases.product(4001, 501, 4001)]
    problems = write_problems([(case.name, case.source) for case in wanted], tmp_path)
    paths = {case.name: tmp_path / f"{index}.py" for index, case in enumerate(wanted)}
    for naming, libraries in ((Naming.AS_EMITTED, 2), (Naming.SHARED, 1)):
        files = [emit(problems[name], path, Library.NEVER, naming) for name, path in paths.items()]
        assert [file.error for file in files] == ["", ""]
        assert len({file.library for file in files}) == libraries
        for file in files:
            text = file.path.read_text()
            compile(text, str(file.path), "exec")
            assert f'"name": "{file.library}"' in text


def test_a_problem_that_does_not_load_is_a_row_not_a_crash(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("class Model:\n")
    assert "broken.py" in emit(broken, tmp_path / "new.py", Library.NEVER, Naming.SHARED).error
