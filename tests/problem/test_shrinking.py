"""Smaller sizes: within the budget, still working, and odd where they may be."""

from pathlib import Path

import pytest
import torch

from kernelwright.problem import (
    Budget,
    Cost,
    Problem,
    errors,
    instantiate,
    load_problem,
    measure,
    round_up,
    shrink,
    shrink_data,
    size_variants,
)
from kernelwright.problem.loading import parse_problem

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def problem(constants: str, init: str, forward: str, inputs: str) -> Problem:
    text = f"""\
import torch
from torch import nn
{constants}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
    return parse_problem(Path("model.py"), text)


def works(problem: Problem) -> bool:
    instance = instantiate(problem)
    return bool(torch.isfinite(instance.module(*instance.inputs)).all())


def test_the_cost_of_a_product() -> None:
    matmul = next(path for path in EXAMPLES if path.stem == "matmul")
    m, k, n = 2048, 8192, 4096
    assert measure(load_problem(matmul)) == Cost(
        bytes=4 * (m * k + k * n + m * n), flops=2 * m * n * k + m * n
    )


NEEDS_NUMBERS = """
import torch
from torch import nn

WIDTH = 8

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, {width})
        self.pool = nn.MaxPool1d(2)

    def forward(self, x):
        return self.pool(torch.relu(self.linear(x)))

def get_inputs():
    return [torch.rand(2, 4, WIDTH{device})]

def get_init_inputs():
    return [WIDTH]
"""


def test_a_cost_is_the_same_whether_a_problem_needs_numbers_or_not(tmp_path: Path) -> None:
    costs = []
    for width, device in (
        ("width // 2", ""),
        ("int(torch.linspace(1, width // 2, 2)[-1].item())", ""),  # meta tensors have no number
        ("width // 2", ", device='cpu'"),
    ):
        path = tmp_path / "problem.py"
        path.write_text(NEEDS_NUMBERS.format(width=width, device=device))
        cost = measure(load_problem(path))
        costs.append((cost, cost.largest))
    assert costs == [costs[0]] * 3


def test_the_cost_of_parameters_and_of_elementwise_operators() -> None:
    two = problem(
        "N = 10", "self.w = nn.Parameter(torch.zeros(N))", "(x * self.w).exp()", "torch.rand(3, N)"
    )
    assert measure(two) == Cost(bytes=4 * (30 + 10 + 30), flops=60)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_fit_and_work(path: Path) -> None:
    budget = Budget(bytes=1 << 20, flops=1 << 22)
    variants = size_variants(load_problem(path), budget)
    assert len(variants) >= 3
    assert len({variant.source for variant in variants}) == len(variants)
    for variant in variants:
        assert budget.excess(measure(variant)) <= 1
        assert works(variant)
    sizes = [list(variant.constants.values()) for variant in variants]
    assert any(all(size % 2 for size in row) for row in sizes), "tails are exercised"
    assert any(all(size % 16 == 0 for size in row) for row in sizes), "whole vectors are too"
    assert any(all(size == 1 for size in row) for row in sizes)
    assert len(set(sizes[0])) == len(sizes[0]), "unequal sizes tell dimensions apart"


def test_whole_vectors_where_the_model_allows_them() -> None:
    budget = Budget(bytes=1 << 20)
    table = problem("N = 33\nM = 45", "pass", "x[:, :45] * torch.ones(45)", "torch.rand(N, M)")
    whole = round_up(table, 8, budget)
    assert whole.constants == {"N": 40, "M": 48}
    assert works(whole) and round_up(whole, 8, budget) == whole
    fixed = problem("N = 33\nM = 45", "pass", "x * torch.ones(45)", "torch.rand(N, M)")
    assert round_up(fixed, 8, budget).constants == {"N": 40, "M": 45}


def test_what_fits_stays_as_it_is() -> None:
    small = problem("N = 10", "pass", "x + 1", "torch.rand(N)")
    assert shrink(small, Budget()) is small


def test_divisors_are_respected() -> None:
    groups = problem(
        "CHANNELS = 512\nGROUPS = 8\nSIZE = 256",
        "self.norm = nn.GroupNorm(GROUPS, CHANNELS)",
        "self.norm(x)",
        "torch.rand(4, CHANNELS, SIZE)",
    )
    small = shrink(groups, Budget(bytes=1 << 16, flops=1 << 16))
    assert small.constants["GROUPS"] == 8
    assert small.constants["CHANNELS"] % 8 == 0
    assert works(small)


def test_sizes_that_must_be_equal_shrink_together() -> None:
    square = problem(
        "A = 4096\nB = 4096", "pass", "x * torch.ones(A)", "torch.rand(B).expand(B, B)"
    )
    small = shrink(square, Budget(bytes=1 << 16))
    assert small.constants["A"] == small.constants["B"] < 4096
    assert works(small)


def test_data_shrinks_before_the_operator_does() -> None:
    conv = problem(
        "CHANNELS = 64\nSIZE = 512\nKERNEL = 7",
        "self.conv = nn.Conv2d(CHANNELS, CHANNELS, KERNEL)",
        "self.conv(x)",
        "torch.rand(2, CHANNELS, SIZE, SIZE)",
    )
    assert shrink(conv, Budget()).constants["KERNEL"] == 7


def test_real_numbers_are_tried_too() -> None:
    table = problem(
        "WORDS = 100000\nCOUNT = 2048",
        "self.table = nn.Embedding(WORDS, 64)",
        "self.table(x)",
        "torch.arange(2048) * 3 % 1500",
    )
    small = shrink(table, Budget(bytes=600_000, flops=1 << 20))
    assert small.constants["WORDS"] >= 1500, "an index must lie inside the table"
    assert works(small)


def test_a_problem_that_does_not_run_says_so() -> None:
    with pytest.raises(errors.ProblemRaisedError) as caught:
        shrink(problem("N = 10", "pass", "x @ x", "torch.rand(N, 3)"), Budget())
    assert caught.value.location == "model.py:9"


NORM = """\
import torch
from torch import nn
rows, features, width = 512, 64, 256
class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.count = count
    def forward(self, x):
        return self.norm(x) / self.count
def get_inputs():
    return [torch.rand(rows, features, width)]
def get_init_inputs():
    return [features]
"""


def test_data_shrinks_and_what_the_constructor_is_given_stays() -> None:
    norm = parse_problem(Path("model.py"), NORM)
    budget = Budget(bytes=1 << 18)
    assert shrink(norm, budget).constants["features"] < 64
    smaller = shrink_data(norm, budget)
    assert smaller.constants["features"] == 64
    assert smaller.constants["rows"] < 512
    assert budget.excess(measure(smaller)) <= 1
    assert works(smaller)
