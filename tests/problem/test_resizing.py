"""Other sizes: the text changes where the constants are, and nowhere else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.problem import errors, resize
from kernelwright.problem.loading import parse_problem

TEXT = """\
import torch  # größe = "M = 16"
from torch import nn
M = 2048 * 2 ; N = 17  # M
H, W = 32,\\
    (64)
KERNEL = (3, 1 + 4)
class Model(nn.Module):
    def forward(self, x): return x
def get_inputs(): return [torch.rand(M, N)]
def get_init_inputs(): return []
"""
PROBLEM = parse_problem(Path("model.py"), TEXT)


def test_only_the_constant_changes() -> None:
    assert resize(PROBLEM, {"M": 5}).source == TEXT.replace("2048 * 2", "5", 1)
    assert resize(PROBLEM, {"KERNEL[1]": 7}).source == TEXT.replace("1 + 4", "7")
    assert resize(PROBLEM, {"W": 1}).source == TEXT.replace("(64)", "(1)")


def test_the_same_sizes_change_nothing() -> None:
    assert resize(PROBLEM, PROBLEM.constants).source == TEXT


def test_line_ends_stay() -> None:
    windows = parse_problem(Path("model.py"), TEXT.replace("\n", "\r\n"))
    assert resize(windows, {"N": 3}).source == TEXT.replace("17", "3").replace("\n", "\r\n")


@given(
    st.dictionaries(
        st.sampled_from(sorted(PROBLEM.constants)), st.integers(min_value=1, max_value=2**40)
    )
)
def test_what_was_asked_for_is_what_is_read(sizes: dict[str, int]) -> None:
    resized = resize(PROBLEM, sizes)
    assert resized.constants == {**PROBLEM.constants, **sizes}
    assert resize(resized, PROBLEM.constants).constants == PROBLEM.constants


def test_unknown_names_are_refused() -> None:
    with pytest.raises(errors.UnknownConstantError, match=r"`K`; it has: M, N, H, W"):
        resize(PROBLEM, {"K": 3})


@pytest.mark.parametrize("size", [0, -4, 2.5, True, "3"])
def test_sizes_are_positive_integers(size: object) -> None:
    with pytest.raises(errors.WrongSizeError):
        resize(PROBLEM, {"M": size})  # type: ignore[dict-item]
